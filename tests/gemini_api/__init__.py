"""A scripted Gemini API for tests: plays the scripts of `tests.model_api` to the real Gemini CLI, and keeps the bill."""

from .server import GeminiApi

__all__ = ["GeminiApi"]
