"""What adapters share: reading lines and fields, options, error mapping."""
