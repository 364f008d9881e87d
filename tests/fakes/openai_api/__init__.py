"""A scripted OpenAI Responses API for the real Codex CLI: plays the model API's scripts keeps the bill."""

from .cli import MODEL, codex_environment
from .messages import shell, spawn
from .server import OpenAiApi

__all__ = ["MODEL", "OpenAiApi", "codex_environment", "shell", "spawn"]
