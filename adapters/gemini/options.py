"""The options of a Gemini CLI turn, and the flag that each of them becomes.

To add a flag: add a field here, its flag in `FLAGS`, and run `make docs`. What the CLI takes from its settings
alone is not here: it reads only those of root, its user and the workspace (0.61.0), so they are the host's own.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from adapters.request import invalid

MAX_ARGUMENT_BYTES = 100_000  # the kernel refuses one argument of 128 KiB (E2BIG)


def _fits_argv(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character; remove it")
    if len(text.encode(errors="surrogatepass")) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {MAX_ARGUMENT_BYTES:,} bytes, which no process can be given")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_fits_argv)]


class GeminiOptions(BaseModel):
    """What `options` of a request may hold for the agent `gemini`. Left out: the Gemini CLI's own default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    approval_mode: Literal["default", "auto_edit", "yolo", "plan"] = Field(
        default="yolo",
        description="By default it acts unasked: nobody is there to be asked. In the other modes, tools that it "
        "would have to ask for are not there.",
    )
    model: Text | None = Field(default=None, description="A name, as `gemini --model` takes it.")
    sandbox: bool | None = Field(
        default=None, description="Run its tools in its sandbox; the host has to have one."
    )
    allowed_tools: Text | None = Field(
        default=None, description="Comma-separated: these run unasked in any approval mode."
    )
    allowed_mcp_servers: Text | None = Field(default=None, description="Comma-separated; left out, all.")
    extensions: Text | None = Field(default=None, description="Comma-separated; `none` for none; left out, all.")
    include_directories: Text | None = Field(
        default=None, description="Comma-separated directories on the host, beside the workspace."
    )
    slash_command: bool = Field(
        default=False, description="true: a prompt with a leading `/` is a command; otherwise it is text."
    )
    file_references: bool = Field(
        default=False,
        description="true: `@path` in a prompt stands for what the file holds; otherwise a backslash before it "
        "keeps it text.",
    )

    @classmethod
    def parse(cls, options: dict[str, JsonValue]) -> GeminiOptions:
        """Validate; raises InvalidRequest with the option named."""
        try:
            return cls.model_validate(options)
        except ValidationError as error:
            raise invalid(error, "options") from error


FLAGS: dict[str, str] = {
    "approval_mode": "--approval-mode",
    "model": "--model",
    "allowed_tools": "--allowed-tools",
    "allowed_mcp_servers": "--allowed-mcp-server-names",
    "extensions": "--extensions",
    "include_directories": "--include-directories",
}


def flags(options: GeminiOptions) -> list[str]:
    """The options as arguments, each flag and its value in one, so that no value is taken for a flag."""
    arguments = [
        f"{flag}={value}" for name, flag in FLAGS.items() if (value := getattr(options, name)) is not None
    ]
    if options.sandbox is not None:
        arguments.append(f"--sandbox={str(options.sandbox).lower()}")
    return arguments
