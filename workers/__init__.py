"""The composition: Celery app and task, the runner of a turn, the producer's client, the command line."""
