"""Celery tasks that wrap RunTurn: execute them, and deliver their ends."""
