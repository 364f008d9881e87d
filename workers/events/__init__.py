"""Events of a turn: recorded, stored, published, followed."""
