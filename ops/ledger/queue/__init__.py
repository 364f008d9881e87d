"""The queue: turns that wait, run and end, and who waits for them."""
