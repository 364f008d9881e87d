"""Shorthands for the replies and errors that a test needs most; the texts are those of the real API."""

from __future__ import annotations

from pydantic import JsonValue

from .script import HttpError, Reply, Text, ToolUse, Usage


def text(words: str, usage: Usage | None = None) -> Reply:
    """A final answer of one text block."""
    return Reply((Text(words),), usage or Usage(input=10, output=5))


def bash(command: str) -> ToolUse:
    """A call of Claude Code's Bash tool."""
    return ToolUse("Bash", {"command": command, "description": "scripted"})


def agent(prompt: str, *, model: str | None = None, background: bool = False) -> ToolUse:
    """A call of Claude Code's Agent tool, which starts a subagent. `model` is an alias such as `haiku`."""
    call: dict[str, JsonValue] = {
        "description": "scripted subagent",
        "prompt": prompt,
        "subagent_type": "general-purpose",
        "run_in_background": background,
    }
    if model is not None:
        call["model"] = model
    return ToolUse("Agent", call)


def invalid_request(message: str) -> HttpError:
    """400 for a request the API cannot serve."""
    return HttpError(400, "invalid_request_error", message)


def low_credit() -> HttpError:
    """400 for an account without credit."""
    return invalid_request(
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits."
    )


def prompt_too_long() -> HttpError:
    """400 for a conversation beyond the context window."""
    return invalid_request("prompt is too long: 212345 tokens > 200000 maximum")


def unauthorized() -> HttpError:
    """401 for a wrong API key."""
    return HttpError(401, "authentication_error", "invalid x-api-key")


def forbidden() -> HttpError:
    """403 for a key without the permission."""
    return HttpError(403, "permission_error", "Your API key does not have permission to use this resource.")


def unknown_model(model: str) -> HttpError:
    """404 for a model that does not exist."""
    return HttpError(404, "not_found_error", f"model: {model}")


def rate_limited(retry_after_s: int) -> HttpError:
    """429 of an API key: too many requests just now."""
    return HttpError(
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit.",
        {"retry-after": str(retry_after_s)},
    )


def subscription_limit(resets_at: int, *, window: str = "five_hour") -> HttpError:
    """429 of a subscription login whose window is used up until `resets_at` (Unix seconds)."""
    return HttpError(
        429, "rate_limit_error", "This request would exceed your account's rate limit.",
        unified_limit_headers("rejected", resets_at, window=window),
    )  # fmt: skip


def unified_limit_headers(
    status: str, resets_at: int, *, window: str = "five_hour", utilization: float = 1.0
) -> dict[str, str]:
    """The headers a subscription login gets on every response.

    Args:
        status: `allowed`, `allowed_warning` or `rejected`.
        resets_at: Unix seconds.
        window: `five_hour` or `seven_day`.
        utilization: share of the window that is used up, 0 to 1.
    """
    short = {"five_hour": "5h", "seven_day": "7d"}[window]
    prefix = "anthropic-ratelimit-unified"
    headers = {
        f"{prefix}-status": status,
        f"{prefix}-reset": str(resets_at),
        f"{prefix}-representative-claim": window,
        f"{prefix}-overage-status": "rejected",
        f"{prefix}-{short}-status": status,
        f"{prefix}-{short}-reset": str(resets_at),
        f"{prefix}-{short}-utilization": str(utilization),
    }
    if status == "allowed_warning":  # this header, not the status, makes the CLI warn
        headers[f"{prefix}-{short}-surpassed-threshold"] = str(utilization)
    return headers


def server_error() -> HttpError:
    """500."""
    return HttpError(500, "api_error", "Internal server error")


def overloaded() -> HttpError:
    """529."""
    return HttpError(529, "overloaded_error", "Overloaded")
