"""Usage, costs and budgets: booked once."""
