"""Built-in tools of Claude Code: those of our recordings (2.1.330), and those of its documentation.

Tools of MCP servers are configured by users and can have any name.
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

# These tools call a model themselves. Their usage is in the final report, but in no session file.
ASKING: Final = frozenset({"WebFetch", "WebSearch"})
