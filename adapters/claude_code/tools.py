"""The tools that come with Claude Code: those of our recordings (2.1.330), and those of its documentation.

Those of MCP servers are the user's: they can have any name.
"""

from typing import Final

TOOLS: Final = frozenset({
    "Agent", "AskUserQuestion", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList", "Edit",
    "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "KillShell", "LSP",
    "ListMcpResourcesTool", "MultiEdit", "NotebookEdit", "Read", "ReadMcpResourceTool", "ReportFindings",
    "ScheduleWakeup", "SendMessage", "Skill", "SlashCommand", "StructuredOutput", "Task", "TaskCreate", "TaskGet",
    "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch",
    "Workflow", "Write",
})  # fmt: skip

# These ask a model on their own account. What they pay stands in the final report, but in no session file.
ASKING: Final = frozenset({"WebFetch", "WebSearch"})
