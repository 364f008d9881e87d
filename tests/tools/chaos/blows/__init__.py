"""The blows, or injected faults: each kind in its own module."""
