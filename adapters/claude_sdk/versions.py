"""The versions of Claude Code that live turns were proved with."""

from dataclasses import replace

from adapters.claude_code.versions import VERSIONS as OF_CLAUDE_CODE

# Its recordings are of these two; the matrix of `make test-agents` plays no live turns.
VERSIONS = replace(OF_CLAUDE_CODE, proved=("2.1.197", "2.1.330"))
