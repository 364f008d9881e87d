"""Redaction of secrets in logs, events, monitors and agents' environments."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Self
from urllib.parse import unquote

MIN_LENGTH = 6  # shorter values are words and numbers that occur naturally
WITHHELD_MIN_LENGTH = 12  # for secrets withheld from agents: `postgres` is a password, and a common word

# GITHUB_TOKEN is a secret, MAX_OUTPUT_TOKENS is not; MYSQL_PWD is, PWD is not.
_SECRET_NAME = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL"
    r"|(^|_)(TOKEN|PAT|JWT|AUTH|AUTHORIZATION|COOKIE|DSN)$|_(KEY|PWD)$|OTLP(_[A-Z]+)?_HEADERS$",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/@:]*:([^\s/@]+)@")
_LINE_MIN_LENGTH = 16  # for lines of a multi-line secret, each of which may occur alone
_OURS = ("RUNTURN_", "CELERY_")

# Keys recognizable by their format, as documented by their issuers. In JSON, the character before one may be the n
# of an escaped line break.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_GITLAB = "gl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|wt|soat|ffct)"  # by name: `glue-` and `global-` are words
_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?-----(?:[^-\"']|-(?!----))*"
    r"(?:-----END [A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?-----)?"
    rf"|{_START}(?:"
    r"sk-(?=[A-Za-z_-]{0,30}[0-9])[A-Za-z0-9_-]{16,}"  # Anthropic, OpenAI and others
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,}"  # Stripe
    r"|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}"  # GitHub
    rf"|{_GITLAB}-[A-Za-z0-9_-]{{20,}}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"  # AWS, Google
    r"|xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{10,}"  # Slack
    r"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{20,}"
    # JSON web tokens. The first part is limited: or each `-eyJ` in a long line would be scanned to the line's end.
    r"|eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r")"
)
# Secrets recognizable by the words before them; those words are kept.
_TOLD = re.compile(
    r"(://[^\s/@:]{0,100}:)[^\s/@]+(?=@)"
    r"|((?i:bearer|authorization[\"']?\s?[:=]\s?[\"']?(?:basic|token))\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|((?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|_PAT|_PWD|KEY)=[\"']?)(?!\[redacted)[^\s\"'\\]{6,}"
)
# Every match contains one of these, which are found many times faster than the patterns.
_MARKS = (
    *("PRIVATE KEY", "sk-", "_live_", "_test_", "whsec_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_"),
    *("gl", "AKIA", "ASIA", "AIza", "ya29.", "xox", "xapp-", "hf_", "npm_", "pypi-", "eyJ", "://"),
    *("PASSWORD=", "PASSWD=", "PASSPHRASE=", "SECRET=", "TOKEN=", "_PAT=", "_PWD=", "KEY="),
)


def looks_secret(name: str, value: str) -> bool:
    """Return True if an environment variable looks secret: by its name, a password in a URL, or a key format."""
    return any(
        found is not None for found in (_SECRET_NAME.search(name), _URL_PASSWORD.search(value), _KEY.search(value))
    )


def scrubbed(environ: Mapping[str, str], keep: Collection[str]) -> dict[str, str]:
    """Return a worker's environment as its agents may see it: without secrets and the worker's own settings.

    Variables named in `keep` always stay.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in keep or not (name.startswith(_OURS) or looks_secret(name, value))
    }


def without_keys(text: str) -> str:
    """Redact everything in the text that looks like a key or a password."""
    if not any(mark in text for mark in _MARKS):
        lowered = text.lower()
        if "bearer" not in lowered and "authorization" not in lowered:
            return text
    return _TOLD.sub(lambda told: (told[1] or told[2] or told[3]) + "[redacted]", _KEY.sub("[redacted:key]", text))


class Redactor:
    """Replaces given secrets with `[redacted:NAME]`, both verbatim and as written in JSON or a repr."""

    def __init__(
        self, secrets: Mapping[str, str], *, min_length: int = MIN_LENGTH, others: Redactor | None = None
    ) -> None:
        """Redact secrets of at least `min_length` characters, and those of `others`."""
        forms = dict(others._texts) if others is not None else {}
        for name, secret in secrets.items():
            forms |= {form: f"[redacted:{name}]" for form in _forms(secret) if len(form) >= min_length}
        self._texts: dict[str, str] = dict(
            sorted(forms.items(), key=_longest_first)
        )  # a secret may start with another one
        self._lines = {_encoded(form): text.encode() for form, text in self._texts.items()}
        self._text_pattern = re.compile("|".join(map(re.escape, self._texts)))
        self._line_pattern = re.compile(b"|".join(map(re.escape, self._lines)))

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> Self:
        """Return a redactor for the secrets among these variables."""
        return cls(_secrets_of(environ))

    @classmethod
    def of_withheld(cls, environ: Mapping[str, str]) -> Self:
        """Return a redactor for secrets withheld from agents, to apply to arbitrary text."""
        return cls(_secrets_of(environ), min_length=WITHHELD_MIN_LENGTH)

    def and_of_environment(self, environ: Mapping[str, str]) -> Redactor:
        """Return this redactor extended by the secrets among these variables."""
        return Redactor(_secrets_of(environ), others=self)

    def and_of_files(self, files: Mapping[str, bytes]) -> Redactor:
        """Return this redactor extended by the secrets in these JSON files: variables and headers, by name."""
        redactor = self
        for content in files.values():
            with contextlib.suppress(ValueError):
                for name, value in _named(json.loads(content)):
                    redactor = redactor.and_of_environment({name: value})
        return redactor

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if not any(form in text for form in self._texts):  # the usual case, and many times faster than the pattern
            return text
        return self._text_pattern.sub(lambda match: self._texts[match.group()], text)

    def lines(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return lines of output without secrets."""
        together = b"\n".join(lines)  # usually there is none: millions of short lines cost a few searches
        if not any(form in together for form in self._lines):
            return lines
        return [self.line(line) for line in lines]

    def line(self, line: bytes) -> bytes:
        """Return the line without secrets."""
        for form in self._lines:  # runs for every event: any() takes twice as long
            if form in line:
                return self._line_pattern.sub(lambda match: self._lines[match.group()], line)
        return line


def _secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if looks_secret(name, value)}


def _named(document: object) -> Iterator[tuple[str, str]]:
    """Yield all named strings in a document; of `Bearer TOKEN`, the token."""
    if isinstance(document, list):
        for item in document:
            yield from _named(item)
    elif isinstance(document, dict):
        for name, value in document.items():
            if isinstance(value, str) and value:
                yield name, value.split()[-1] if value.split() else value
            else:
                yield from _named(value)


def _longest_first(form: tuple[str, str]) -> int:
    return -len(form[0])


def _forms(secret: str) -> Iterator[str]:
    # Not urlsplit: it rejects URLs that others accept, such as one with a bracket in its password.
    passwords = (match[1] for match in _URL_PASSWORD.finditer(secret))
    lines = (line.strip() for line in secret.splitlines()) if "\n" in secret else ()
    telling = (line for line in lines if len(line) >= _LINE_MIN_LENGTH and not line.startswith("-----"))
    for value in (secret, *passwords, *telling):
        for plain in (value, unquote(value)):
            quoted = (json.dumps(plain), json.dumps(plain, ensure_ascii=False), repr(plain))
            # Encoded twice, too: a tool's JSON output is a string in an agent's JSON.
            yield from (plain, *(text[1:-1] for text in (*quoted, json.dumps(quoted[0][1:-1]))))


def _encoded(form: str) -> bytes:
    return form.encode(errors="surrogateescape")  # as os.environ decodes non-UTF-8 bytes
