"""The queue: turns that wait, run and end, and the tasks waiting for them."""
