"""Operations: settings, the ledger, metrics and logs.

Nothing in this package starts a process, depends on Celery or names an agent.
"""
