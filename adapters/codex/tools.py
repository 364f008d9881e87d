"""The tools that come with Codex, by the type of their items in its stream (0.169.0).

Those of MCP servers are the user's: they can have any name.
"""

from typing import Final

TOOLS: Final = frozenset({"collab_tool_call", "command_execution", "file_change", "web_search"})
