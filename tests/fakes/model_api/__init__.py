"""A scripted model API for tests and the demo: speaks the Anthropic Messages API and keeps the exact bill."""

from .bill import UNROUTED, Bill, BilledRequest
from .gates import Gate
from .script import (
    Branch,
    Fault,
    Hold,
    HttpError,
    Reply,
    Script,
    ScriptBook,
    Text,
    Thinking,
    ToolUse,
    Usage,
    dump_scripts,
    load_scripts,
)
from .server import ModelApi

__all__ = [
    "UNROUTED",
    "Bill",
    "BilledRequest",
    "Branch",
    "Fault",
    "Gate",
    "Hold",
    "HttpError",
    "ModelApi",
    "Reply",
    "Script",
    "ScriptBook",
    "Text",
    "Thinking",
    "ToolUse",
    "Usage",
    "dump_scripts",
    "load_scripts",
]
