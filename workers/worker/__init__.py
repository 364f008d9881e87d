"""The Celery worker process: receives tasks, claims turns from the ledger, runs them."""
