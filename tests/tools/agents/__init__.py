"""`make test-agents`: every version of the real agents that fleets have, through a real worker.

Each version plays each scene against a scripted API that keeps its own bill; what becomes of it is a cell of the
table in docs/adapters.md.
"""
