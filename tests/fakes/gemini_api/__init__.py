"""A scripted Gemini API: plays the scripts of `tests.fakes.model_api` to the real Gemini CLI, and keeps the
bill."""

from .server import GeminiApi

__all__ = ["GeminiApi"]
