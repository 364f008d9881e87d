"""Celery tasks of turns: their execution, and the delivery of their outcomes."""
