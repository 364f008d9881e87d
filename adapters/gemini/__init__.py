"""Gemini CLI: `adapter` has the parts, `options` the flags, `parser` the events, `judge` the outcome."""
