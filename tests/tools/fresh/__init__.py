"""`make test-fresh`: README's promise, kept on bare Debian systems, by every kind of newcomer."""
