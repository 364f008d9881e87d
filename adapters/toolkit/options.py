"""Base of agents' options: validation and conversion to arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from adapters.protocol.validation_errors import invalid

MAX_ARGUMENT_BYTES = 100_000  # the kernel refuses an argument of 128 KiB (E2BIG)


def _fits_argv(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character; remove it")
    if len(text.encode(errors="surrogatepass")) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {MAX_ARGUMENT_BYTES:,} bytes, which is too long for an argument")
    return text


def printable(text: str) -> str:
    """Return the text. Raise ValueError if it contains a control character."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValueError("contains a control character; remove it")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_fits_argv)]  # text that becomes an argument


class AgentOptions(BaseModel):
    """Request options of one agent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def parse(cls, options: Mapping[str, JsonValue]) -> Self:
        """Return the validated options. Raise InvalidRequest, naming the option, if one is invalid."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise invalid(error, "options", kind=cls) from error

    def overridden(self, options: Mapping[str, JsonValue]) -> Self:
        """Return these options, overridden by a request's. Raise InvalidRequest, naming the option."""
        own = self.parse(options)
        return self.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


def given_flags(options: AgentOptions, flags: Mapping[str, str]) -> list[str]:
    """Return the flags whose options are set, as `flag=value`, so that no value is mistaken for a flag."""
    values = {flag: getattr(options, name) for name, flag in flags.items()}
    return [f"{flag}={value}" for flag, value in values.items() if value is not None]
