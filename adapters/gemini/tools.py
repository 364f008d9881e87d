"""Built-in tools of the Gemini CLI: those that 0.61.0 offers a model, and those of its documentation.

Tools of MCP servers are configured by users and can have any name.
"""

from typing import Final

TOOLS: Final = frozenset({
    "activate_skill", "ask_user", "complete_task", "enter_plan_mode", "exit_plan_mode", "get_internal_docs",
    "glob", "google_web_search", "grep_search", "invoke_agent", "list_background_processes", "list_directory",
    "read_background_output", "read_file", "read_many_files", "replace", "run_shell_command", "save_memory",
    "update_topic", "web_fetch", "write_file", "write_todos",
})  # fmt: skip

# These tools call a model themselves. Their usage is in the final report, but in no session file; a subagent's
# session file may also lack an answer.
ASKING: Final = frozenset({"google_web_search", "invoke_agent", "replace", "web_fetch", "write_file"})
