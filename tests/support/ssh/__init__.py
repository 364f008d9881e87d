"""A laboratory of real hosts: OpenSSH servers, accounts with all kinds of shells, and links that can be cut."""
