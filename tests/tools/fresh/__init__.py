"""`make test-fresh`: README's commands on bare Debian systems, as each kind of new user."""
