"""The gateway between agents and the APIs of their models: it holds the keys, and meters every request."""
