"""Secrets stay where they are."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.redaction import Redactor, looks_secret, scrubbed, without_keys

SECRETS = {"GITHUB_TOKEN": "ghp_0123456789", "MULTILINE_KEY": '-----BEGIN "KEY"-----\nabc\\ä\n'}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITHUB_TOKEN", "x"),
        ("ANTHROPIC_API_KEY", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("PGPASSWORD", "x"),
        ("MYSQL_PWD", "x"),
        ("SSH_PRIVATE_KEY_PEM", "x"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "x"),
        ("session_cookie", "x"),
        ("SENTRY_DSN", "x"),
        ("STRIPE_KEY", "x"),
        ("TOKEN", "x"),
        ("CACHE", "redis://:hunter22@h/0"),
        ("NOTIFY", "xoxb-" + "123456789012-abcdefABCDEF"),
        ("DATABASE_URL", "postgresql://me:hunter22@h/db"),
    ],
)
def test_secret_is_recognised(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("PWD", "/srv"),
        ("OLDPWD", "/srv"),
        ("HOME", "/root"),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "64000"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("SSH_AUTH_SOCK", "/tmp/agent"),
        ("KEYBOARD", "de"),
        ("DATABASE_URL", "postgresql://me@h/db"),
        ("PROXY", "http://proxy:3128/a@b"),
        ("NPM_PATH", "/opt"),
        ("BUCKET", "glue-assets-123456789012-eu-west-1"),
    ],
)
def test_ordinary_variable_is_not_a_secret(name: str, value: str) -> None:
    assert not looks_secret(name, value)


def test_long_values_are_looked_at_in_no_time() -> None:
    assert not looks_secret("CERTIFICATES", "a" * 1_000_000)


def test_agents_see_no_secret_that_nobody_asked_for() -> None:
    environ = {
        "PATH": "/bin",
        "RUNTURN_BROKER_URL": "redis://h",
        "CELERY_CONFIG": "x",
        "GITHUB_TOKEN": "ghp_0123456789",
        "ANTHROPIC_API_KEY": "sk-1",
    }
    assert scrubbed(environ, ()) == {"PATH": "/bin"}
    assert scrubbed(environ, {"ANTHROPIC_API_KEY", "MISSING"}) == {"PATH": "/bin", "ANTHROPIC_API_KEY": "sk-1"}


def test_json_within_json_hides_no_secret() -> None:
    """A tool prints a file of credentials, and the agent's line holds that as a text."""
    printed = json.dumps(SECRETS)
    line = json.dumps({"content": printed})
    told = json.loads(json.loads(Redactor(SECRETS).line(line.encode()))["content"])
    assert told == {name: f"[redacted:{name}]" for name in SECRETS}


def test_lines_of_a_secret_are_secrets() -> None:
    key = "-----BEGIN PRIVATE " + "KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nend\n-----END PRIVATE KEY-----\n"
    redactor = Redactor({"KEY": key})
    assert redactor.text("got MIIEvQIBADANBgkqhkiG9w0B!") == "got [redacted:KEY]!"
    assert redactor.text("the end\n-----BEGIN") == "the end\n-----BEGIN"


def test_what_is_withheld_is_looked_for_if_it_is_no_word() -> None:
    withheld = {"DB_PASSWORD": "postgres", "MAIL_PASSWORD": "correct-horse-battery", "HOME": "/root/of/all/evil"}
    redactor = Redactor.of_withheld(withheld).and_of_environment({"MY_TOKEN": "abcdef", "PATH": "/usr/bin:/bin"})
    text = "postgres correct-horse-battery /root/of/all/evil abcdef /usr/bin:/bin"
    clean = "postgres [redacted:MAIL_PASSWORD] /root/of/all/evil [redacted:MY_TOKEN] /usr/bin:/bin"
    assert redactor.text(text) == clean
    assert redactor.line(text.encode()) == clean.encode()


def test_secret_is_replaced_raw_and_in_json() -> None:
    redactor = Redactor(SECRETS)
    for secret, name in ((value, name) for name, value in SECRETS.items()):
        for form in (secret, json.dumps({"out": secret}), json.dumps({"out": secret}, ensure_ascii=False)):
            for clean in (redactor.text(f"a {form} b"), redactor.line(f"a {form} b".encode()).decode()):
                assert f"[redacted:{name}]" in clean
                assert secret not in clean
                assert "BEGIN" not in clean
    assert json.loads(redactor.line(json.dumps(SECRETS).encode())) == {
        "GITHUB_TOKEN": "[redacted:GITHUB_TOKEN]",
        "MULTILINE_KEY": "[redacted:MULTILINE_KEY]",
    }


def test_longer_secret_wins_over_one_that_it_begins_with() -> None:
    redactor = Redactor({"SHORT": "abcdef", "LONG": "abcdefgh"})
    assert redactor.text("abcdefgh abcdefg") == "[redacted:LONG] [redacted:SHORT]g"


def test_short_values_are_left_alone() -> None:
    assert Redactor({"TOKEN": "12345"}).text("12345") == "12345"


def test_password_of_a_url_is_a_secret_by_itself() -> None:
    redactor = Redactor.of_environment({"LEDGER": "postgresql://me:p%40ssw0rd@h/db", "PATH": "/usr/bin"})
    assert redactor.text("postgresql://me:p%40ssw0rd@h/db") == "[redacted:LEDGER]"
    assert redactor.text("FATAL: password p@ssw0rd is wrong") == "FATAL: password [redacted:LEDGER] is wrong"
    assert redactor.text("in /usr/bin") == "in /usr/bin"


@pytest.mark.parametrize("password", ["pa[ssword", "pa]ssword", "paswor\u2100d", "pa?ss#word"])
def test_url_that_is_none_holds_a_password_all_the_same(password: str) -> None:
    redactor = Redactor.of_environment({"BROKER": f"redis://:{password}@h/0"})
    assert redactor.text(f"refused: {password}") == "refused: [redacted:BROKER]"


def test_without_secrets_nothing_is_touched() -> None:
    line = b"x" * 100
    assert Redactor({}).line(line) is line
    assert Redactor({"EMPTY_TOKEN": ""}).text("text") == "text"


@pytest.mark.parametrize("lines", [[], [b"plain"], [b"a hush-hush b", b"", b"plain"], [b"hush-", b"hush"]])
def test_lines_are_redacted_as_each_of_them_is(lines: list[bytes]) -> None:
    redactor = Redactor({"TOKEN": "hush-hush", "PEM": "first line\nsecond line"})
    assert list(redactor.lines(lines)) == [redactor.line(line) for line in lines]
    several = [*lines, b"first line", b"second line"]  # a line break belongs to no line
    assert list(redactor.lines(several)) == [redactor.line(line) for line in several]


def test_secret_that_is_not_text_is_replaced_in_bytes() -> None:
    redactor = Redactor({"TOKEN": b"\xff\xfe-secret".decode(errors="surrogateescape")})
    assert redactor.line(b"a \xff\xfe-secret b") == b"a [redacted:TOKEN] b"


@given(
    secret=st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=20),
    around=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_no_secret_survives(secret: str, around: str) -> None:
    redactor = Redactor({"N": secret})
    document = json.dumps([around, secret, around])
    clean = redactor.line(document.encode()).decode()
    assert "[redacted:N]" in clean
    assert json.dumps(secret)[1:-1] not in clean.replace("[redacted:N]", "")


# Taken apart, so that nobody who looks for keys in this repository finds any.
KEYS = [
    "sk-ant-" + "api03-8fUp0aZq_Xy7-Lw2ZQ0123456789",
    "sk-" + "proj-Zq8fUp0aXy7Lw2ZQ0123456789",
    "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_" + "11AAAAAAA0abcdefghijkl_0123456789",
    "glpat-" + "zq8fUp0aXy7Lw2ZQ0123",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyD0123456789abcdefghijklmnopqrstuv",
    "xoxb-" + "123456789012-abcdefABCDEF",
    "sk_live_" + "51H8fUp0aZqXy7",
    "hf_" + "abcdefghijklmnopqrstuvwx",
    "npm_" + "abcdefghijklmnopqrstuvwxyz0123456789",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0",
    "-----BEGIN OPENSSH PRIVATE " + "KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE " + "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIIE",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("before", ["use ", "", "(", "\n", "key:"])
def test_key_is_known_by_its_looks(key: str, before: str) -> None:
    assert without_keys(f"{before}{key}") == f"{before}[redacted:key]"
    inside = json.dumps({"prompt": f"{before}{key}", "n": 1})
    assert json.loads(without_keys(inside)) == {"prompt": f"{before}[redacted:key]", "n": 1}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("curl -H 'Authorization: Bearer abcDEF123456._-~'", "curl -H 'Authorization: Bearer [redacted]'"),
        ("BeaReR abcDEF123456", "BeaReR [redacted]"),
        ('{"authorization": "Basic dXNlcjpodW50ZXIy"}', '{"authorization": "Basic [redacted]"}'),
        ("redis://:hunter22@h/0 and amqp://me:h%40@h/v", "redis://:[redacted]@h/0 and amqp://me:[redacted]@h/v"),
        ("export DB_PASSWORD='hunter22' X=1", "export DB_PASSWORD='[redacted]' X=1"),
        ("MY_TOKEN=0123456", "MY_TOKEN=[redacted]"),
    ],
)
def test_secret_is_known_by_the_words_before_it(text: str, clean: str) -> None:
    assert without_keys(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "fix the build in /srv/checkout, please",
        "task-received-by-the-worker-number-1",
        "the class sk-loading-indicator-wrapper is gone",
        "see https://example.org/a?b=c and ssh://git@example.org:22/x",
        "a bearer of news",
        "the global-configuration-of-all-workers",
        "MAX_TOKENS=64000 and MONKEY=x",
        "TOKEN=[redacted:TOKEN]",
        "44f2d880-eebe-43e6-98e9-16f3b27484f9 da39a3ee5e6b4b0d3255bfef95601890afd80709",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert without_keys(text) == text


@pytest.mark.parametrize(
    "part",
    ["a", "sk-", "://a:", "-----BEGIN PRIVATE " + "KEY-----", "-eyJ", "eyJaaaaaaaa.", "KEY=", "bearer ", "'"],
)
def test_long_texts_are_looked_through_in_no_time(part: str) -> None:
    text = part * (500_000 // len(part)) + "://"
    begun = time.process_time()
    without_keys(text)
    assert time.process_time() - begun < 2
