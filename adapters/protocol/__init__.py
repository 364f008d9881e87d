"""The documents that producers send and receive."""
