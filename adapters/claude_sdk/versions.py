"""Versions of Claude Code that live turns were tested with."""

from dataclasses import replace

from adapters.claude_code.versions import VERSIONS as OF_CLAUDE_CODE

# The versions of its recordings; the matrix of `make test-agents` has no live turns.
VERSIONS = replace(OF_CLAUDE_CODE, proved=("2.1.197", "2.1.330"))
