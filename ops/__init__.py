"""What an operator needs: settings, the ledger, metrics and logs.

Nothing in this room starts a process or knows Celery, and it names no agent.
"""
