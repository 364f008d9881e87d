"""What the options of agents have in common: how they are read, and how they become arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from adapters.protocol.validation_errors import invalid

MAX_ARGUMENT_BYTES = 100_000  # the kernel refuses one argument of 128 KiB (E2BIG)


def _fits_argv(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character; remove it")
    if len(text.encode(errors="surrogatepass")) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {MAX_ARGUMENT_BYTES:,} bytes, which no process can be given")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_fits_argv)]  # that becomes an argument


class AgentOptions(BaseModel):
    """What `options` of a request may hold for one agent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def parse(cls, options: Mapping[str, JsonValue]) -> Self:
        """Validate; raises InvalidRequest with the option named."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise invalid(error, "options", kind=cls) from error

    def overridden(self, options: Mapping[str, JsonValue]) -> Self:
        """These, with a request's own in their places. Raises InvalidRequest with the option named."""
        own = self.parse(options)
        return self.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


def given_flags(options: AgentOptions, flags: Mapping[str, str]) -> list[str]:
    """Those flags whose option has a value, each with it in one argument, so that no value is taken for a flag."""
    values = {flag: getattr(options, name) for name, flag in flags.items()}
    return [f"{flag}={value}" for flag, value in values.items() if value is not None]
