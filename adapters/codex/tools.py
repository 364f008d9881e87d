"""Built-in tools of Codex, by the type of their items in its stream (0.169.0).

Tools of MCP servers are configured by users and can have any name.
"""

from typing import Final

TOOLS: Final = frozenset({"collab_tool_call", "command_execution", "file_change", "web_search"})
