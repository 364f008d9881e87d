"""Keeping secrets out of logs, events and the environment of agents."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Self
from urllib.parse import unquote, urlsplit

MIN_LENGTH = 6  # shorter values are words and numbers that occur by themselves

# GITHUB_TOKEN is a secret, MAX_OUTPUT_TOKENS is not; MYSQL_PWD is, PWD is not.
_SECRET_NAME = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL"
    r"|(^|_)(TOKEN|PAT|JWT|AUTH|AUTHORIZATION|COOKIE|DSN)$|_(KEY|PWD)$",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/@:]*:[^\s/@]+@")
_OURS = ("RUNTURN_", "CELERY_")


def looks_secret(name: str, value: str) -> bool:
    """Whether an environment variable holds a secret, by its name, or by a password in a URL."""
    return _SECRET_NAME.search(name) is not None or _URL_PASSWORD.search(value) is not None


def scrubbed(environ: Mapping[str, str], keep: Collection[str]) -> dict[str, str]:
    """A worker's environment as its agents may see it: without secrets, and without the worker's own settings.

    What `keep` names stays in any case.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in keep or not (name.startswith(_OURS) or looks_secret(name, value))
    }


class Redactor:
    """Replaces known secrets by `[redacted:NAME]`, as they are and as they stand in JSON."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        forms = {form: name for name, secret in secrets.items() for form in _forms(secret)}
        self._names = {form: f"[redacted:{name}]" for form, name in forms.items()}
        self._raw_names = {_encoded(form): text.encode() for form, text in self._names.items()}
        longest_first = sorted(self._names, key=len, reverse=True)  # a secret may begin with another one
        pattern = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(pattern) if pattern else None
        self._raw_pattern = re.compile(b"|".join(re.escape(_encoded(form)) for form in longest_first))

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> Self:
        """A redactor for the secrets among these variables."""
        return cls({name: value for name, value in environ.items() if looks_secret(name, value)})

    def text(self, text: str) -> str:
        """The text without secrets."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._names[match.group()], text)

    def line(self, line: bytes) -> bytes:
        """The bytes without secrets."""
        if self._pattern is None:
            return line
        return self._raw_pattern.sub(lambda match: self._raw_names[match.group()], line)


def _forms(secret: str) -> Iterator[str]:
    passwords = (urlsplit(url).password for url in _urls(secret))
    for value in (secret, *filter(None, passwords)):
        for plain in (value, unquote(value)):
            for form in (plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]):
                if len(form) >= MIN_LENGTH:
                    yield form


def _urls(text: str) -> list[str]:
    return [match.group() for match in _URL_PASSWORD.finditer(text)]


def _encoded(form: str) -> bytes:
    return form.encode(errors="surrogateescape")  # as os.environ decodes bytes that are not UTF-8
