"""Hostile bytes on their way to a real host, through all kinds of login shells: they arrive as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import textwrap
import uuid
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adapters.command import Command, Signal
from remote.errors import SpawnRefused
from remote.follower import Follower, Lease
from remote.host_queries import check_workspace, list_spools, read_stderr_tail, remove_spool
from remote.run import Output, run_script
from remote.spool import Exit, Spool
from remote.ssh.connector import Connector
from remote.ssh.host import SshHost
from remote.ssh.host_keys import HostKeys
from remote.ssh.target import Target
from tests.support.needs import need
from tests.support.ssh.accounts import SHELLS, Account, account, own_account
from tests.support.ssh.laboratory import drain
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until

T = TypeVar("T")
OWN = "own shell"  # of whoever runs the tests, where there is no root to make accounts
LOGINS = SHELLS if os.geteuid() == 0 else (OWN,)
STOP = (Signal("INT", 0.5), Signal("TERM", 0.5), Signal("KILL", 5.0))

# ---- what is sent

NASTY = [
    *"'\"`\\$%!~-=#&|;<>(){}[]*?^,:\n\r\t\x01\x7f", "--", "-n", "-e", "-c", "--help", "\x1b[31m", "\x1b]0;x\x07",
    "'\\''", "\\'", "\\\\", "\\\n", "\\c", "\\n", "\\0", "\\0101", "\\x41", "%s", "%b", "%n", "%%",
    "$()", "$(id)", "`id`", "${HOME}", "$HOME", "$'\\n'", "$$", "$0", "$@", "~root", "{a,b}", "[a-z]*",
    "!!", "!$", "&&id", "||id", ";id;", "exec\n", "\n\n", "é", "ß", "🦊", "\u202e", "\u2028", "\ufeff", "０",
]  # fmt: skip
BROKEN = (b"\x80", b"\x81", b"\x88", b"\xc3", b"\xe0\x80", b"\xed\xa0\x80", b"\xf0\x9f\xa6", b"\xff\xfe", b"\x990")
PIECES = st.sampled_from([b" ", *(text.encode() for text in NASTY), *BROKEN]) | st.binary(min_size=1, max_size=3)
VALUES = st.lists(PIECES, max_size=5).map(lambda pieces: os.fsdecode(b"".join(pieces).replace(b"\0", b"")))
FILE_NAMES = VALUES.map(lambda name: name.replace("/", "|")).filter(lambda name: name not in ("", ".", ".."))


@dataclass(frozen=True)
class Given:
    """What a program is to get."""

    args: list[str]
    env: dict[str, str]
    folder: str  # the name of its directory
    stdin: bytes


VARIABLES = st.lists(VALUES, min_size=30, max_size=30).map(lambda all: {f"V_{n}": v for n, v in enumerate(all)})
GIVEN = st.builds(
    Given, st.lists(VALUES, min_size=80, max_size=80), VARIABLES, FILE_NAMES, st.binary(max_size=200)
)
SAMPLE = Given(
    [*NASTY, "", " ", *map(os.fsdecode, BROKEN)], {"V": "it's\n$HOME\udc990", "LC_ALL": "zz"}, "-w\n", b"\0\xff\n"
)
DETERMINISTIC = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.large_base_example]
)

# ---- how it is looked at

MARK = "b5c1f0a9d2e74c83"
# What a program was given, as the kernel has it: arguments, environment, directory, and then its input.
SHOW = """
cat "/proc/$$/cmdline"; echo "$0"
cat "/proc/$$/environ"; echo "$0"
readlink -n "/proc/$$/cwd"; echo "$0"
cat; echo "$0"
"""


def show(*args: str) -> tuple[str, ...]:
    """A program that shows what it was given."""
    return ("sh", "-c", SHOW, MARK, *args)


class Shown:
    """What it has shown."""

    def __init__(self, printed: bytes) -> None:
        arguments, environment, directory, self.stdin, rest = printed.split(f"{MARK}\n".encode())
        assert rest == b""
        self.args = tuple(os.fsdecode(word) for word in arguments.split(b"\0")[4:-1])
        entries = (entry.split(b"=", 1) for entry in environment.split(b"\0") if entry)
        self.env = {os.fsdecode(name): os.fsdecode(value) for name, value in entries}
        self.cwd = os.fsdecode(directory)

    def is_what_was(self, given: Given) -> bool:
        got = (self.args, Path(self.cwd).name, self.stdin)
        return got == (tuple(given.args), given.folder, given.stdin) and given.env.items() <= self.env.items()


class Login:
    """An account on a real host, and the way there: a pool of connections as a worker has it."""

    def __init__(self, sshd: Sshd, who: Account, runner: asyncio.Runner, path: str = "") -> None:
        self.account = who
        own = who == own_account()
        self.home = sshd.home if own else who.home
        self.shell = OWN if own else who.name.split("-")[1]
        self._sshd = sshd
        self._runner = runner
        target = Target("box", sshd.host, who.name, sshd.port, sshd.client_key, path=path)
        connector = Connector([target], HostKeys(sshd.folder / "kept"), config_file=Path(os.devnull))
        self.host = SshHost(target, connector)

    def close(self) -> None:
        self.do(self.host.close())

    def with_path(self, path: str) -> Login:
        return Login(self._sshd, self.account, self._runner, path)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def folder(self, name: str) -> Path:
        """A directory of the account's own in its home; missing parents belong to whoever runs the tests."""
        place = self.home / name
        place.mkdir(parents=True, exist_ok=True)
        os.chown(place, self.account.uid, self.account.gid)
        return place

    def spool(self, root: str = "") -> Spool:
        return Spool(root or f"{self.home}/spools", uuid.uuid4().hex, "seal")

    def script(self, script: str, *args: str) -> Output:
        return self.do(run_script(self.host, script, args, timeout_s=90.0))

    def turn(self, command: Command, spool: Spool | None = None) -> tuple[bytes, Exit]:
        return self.do(self._turn(command, spool or self.spool()))

    async def _turn(self, command: Command, spool: Spool) -> tuple[bytes, Exit]:
        async with Follower(self.host, spool, command) as turn:
            output = await drain(turn)
        assert turn.exit is not None
        return output, turn.exit


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    need("sshd")
    with Sshd("PermitUserEnvironment yes") as server:
        yield server


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """The loop that all connections of this module belong to."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module", params=LOGINS)
def login(request: pytest.FixtureRequest, sshd: Sshd, runner: asyncio.Runner) -> Iterator[Login]:
    yield from logged_in(request.param, sshd, runner)


@pytest.fixture
def one_login(sshd: Sshd, runner: asyncio.Runner) -> Iterator[Login]:
    """For what no login shell has a say in."""
    yield from logged_in(LOGINS[0], sshd, runner)


def logged_in(shell: str, sshd: Sshd, runner: asyncio.Runner) -> Iterator[Login]:
    if shell == OWN:
        login = Login(sshd, own_account(), runner)
        yield login
        login.close()
        return
    with account(shell) as who:
        login = Login(sshd, who, runner)
        yield login
        login.close()


# ---- arguments, environment, directory and input


@settings(DETERMINISTIC, max_examples=20)
@given(st.lists(VALUES, min_size=100, max_size=150))
def test_whatever_a_script_is_given_arrives_as_it_is(login: Login, values: list[str]) -> None:
    output = login.script('printf "%s\\0" "$@"; cat', *values)
    assert output == Output(0, b"".join(os.fsencode(value) + b"\0" for value in values), b"")


@settings(DETERMINISTIC, max_examples=8)
@given(GIVEN)
def test_whatever_a_script_passes_on_arrives_as_it_is(login: Login, given: Given) -> None:
    assert passed_on(login, given).is_what_was(replace(given, stdin=b""))


@settings(DETERMINISTIC, max_examples=8)
@given(GIVEN)
def test_whatever_a_command_is_given_arrives_as_it_is(login: Login, given: Given) -> None:
    shown = started(login, given)
    assert shown.is_what_was(given)
    assert shown.env["HOME"] == str(login.home)
    assert "USER" not in shown.env


def passed_on(login: Login, given: Given) -> Shown:
    words = ("env", *(f"{name}={value}" for name, value in given.env.items()), *show(*given.args))
    folder = login.folder(given.folder)
    return Shown(login.script('cd -- "$1" && shift && exec "$@"', str(folder), *words).stdout)


def started(login: Login, given: Given) -> Shown:
    folder = login.folder(given.folder)
    output, end = login.turn(
        Command(show(*given.args), str(folder), given.stdin, given.env, unset_env=("USER",), stop=STOP)
    )
    assert end == Exit(0, "exit")
    return Shown(output)


def test_what_is_very_long_arrives_whole(login: Login) -> None:
    long = ["x" * 131_000, "'" * 20_000, "\\" * 20_000, "\n" * 20_000]
    given = Given(long, {"V": "\\'" * 5_000 + "\n" * 90_000}, "w" * 255, os.urandom(2_000_000))
    assert started(login, given).is_what_was(given)
    # Nobody makes a process of a script's own arguments.
    assert login.script('printf "%s" "$1"', "x" * 500_000).stdout == b"x" * 500_000


def test_what_no_process_can_be_given_is_refused(one_login: Login) -> None:
    with pytest.raises(SpawnRefused, match="Argument list too long") as refusal:
        one_login.turn(Command(("true", "x" * 131_072), "/"))
    assert refusal.value.code == "start_failed"
    with pytest.raises(ValueError, match="the environment is 1200"):
        one_login.turn(Command(("true",), "/", env={"X": "x" * 120_000}))


@pytest.mark.parametrize(
    "fields",
    [{"argv": ("true", "a\0b")}, {"argv": ("a\0b",)}, {"cwd": "/a\0b"}, {"env": {"TOKEN": "secret\0"}}],
    ids=["argument", "program", "directory", "environment"],
)
def test_a_nul_in_a_command_is_refused_with_its_place(one_login: Login, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="NUL") as refusal:
        one_login.turn(replace(Command(("true",), "/"), **fields))
    assert "a\\x00b" in str(refusal.value) or "the environment variable TOKEN" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_nul_in_a_script_its_arguments_or_a_path_is_refused(one_login: Login) -> None:
    for login, script, argument in (
        (one_login, "true", "a\0b"),
        (one_login, "true a\0b", ""),
        (one_login.with_path("/a\0b"), "true", ""),
    ):
        with pytest.raises(ValueError, match="a NUL byte cannot be passed to a host"):
            login.script(script, argument)


# ---- directories


@pytest.mark.parametrize(
    "name", ["it's", 'a "b" $c `d`', "two\nlines", "end\n", "-rf", " ", "\\", "*", "~", "\udcff\x1b"]
)
def test_a_workspace_may_have_any_name(login: Login, name: str) -> None:
    place = login.folder(f"work/{name}")
    output, _ = login.turn(Command(show(), str(place)))
    assert Shown(output).cwd == str(place)
    login.do(check_workspace(login.host, str(place), [f"{login.home}/work"]))
    with pytest.raises(SpawnRefused, match="no such workspace") as refusal:
        login.do(check_workspace(login.host, f"{place}/gone"))
    assert refusal.value.code == "workspace_missing"


def test_a_neighbour_whose_name_only_begins_like_an_allowed_directory_is_outside(login: Login) -> None:
    allowed = login.folder("work/allowed")
    for name in ("allowed\n", "allowed2", "allowed\n\n", "allow"):
        neighbour = login.folder(f"work/{name}")
        with pytest.raises(SpawnRefused) as refusal:
            login.do(check_workspace(login.host, str(neighbour), [str(allowed)]))
        assert refusal.value.code == "workspace_not_allowed"


@pytest.mark.parametrize(
    "root",
    [
        "~/my spools",
        '~/it\'s/$HOME/`id`/"x"',
        "{home}/a b/*/[c]",
        "~/-rf",
        "~/~",
        "~/\\",
        "~/\u00e9\U0001f98a \udcff\udcc3",
    ],
)
def test_spools_may_lie_anywhere(login: Login, root: str) -> None:
    place = Path(root.replace("~", str(login.home), 1).format(home=login.home))
    spool = login.spool(root.format(home=login.home))
    agent = 'setsid sleep 300 & echo "$!"; echo trouble >&2; cat'
    output, end = login.turn(Command(("sh", "-c", agent), "/", b"prompt\n"), spool)
    stray, said = output.split()
    assert (said, end) == (b"prompt", Exit(0, "exit"))
    until(lambda: not runs(int(stray)), "its end")  # who is dying has no environment any more, and still a state
    assert [file.name for file in place.iterdir()] == [spool.id]
    assert modes(place / spool.id) == {"dir": {0o700}, "file": {0o600}}
    assert [state.id for state in login.do(list_spools(login.host, spool.root))] == [spool.id]
    assert login.do(read_stderr_tail(login.host, spool)) == b"trouble\n"
    login.do(remove_spool(login.host, spool))
    assert list(place.iterdir()) == []


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def modes(place: Path) -> dict[str, set[int]]:
    """The modes of a directory, of all below it, and of the files in them."""
    found: dict[str, set[int]] = {"dir": set(), "file": set()}
    for path in (place, *place.rglob("*")):
        found["dir" if path.is_dir() else "file"].add(path.stat().st_mode & 0o7777)
    return found


@pytest.mark.parametrize("name", ["my tools", 'it\'s "here"', "$HOME", "a\\b", "two\nlines", "\udcff 🦊"])
def test_the_path_of_a_host_may_have_any_name(login: Login, name: str) -> None:
    tools = login.folder(f"tools/{name}")
    agent = tools / "an agent"
    agent.write_text("#!/bin/sh\nprintf '%s\\n' \"$PATH\"\n")
    agent.chmod(0o755)
    there = login.with_path(f"/nowhere:{tools}")
    output, _ = there.turn(Command(("an agent",), "/"))
    assert output.startswith(os.fsencode(f"/nowhere:{tools}:/"))
    assert there.script('"an agent"').stdout == output
    there.close()


# ---- login shells that somebody has made themselves at home in

# bash, fish and tcsh read a file before a command that comes over SSH; others read none.
HABITS = {
    "bash": r"""
        printf 'Welcome!\nno newline'; printf '\0\377\033]0;title\a'; echo complaint >&2
        set -efuC
        shopt -s expand_aliases nullglob
        trap 'echo bye' EXIT DEBUG
        export IFS=ex0 PATH="/odd folder/it's::$PATH:relative" TRACE='$(id)'
        cd /usr
        umask 0
        read() { echo no; }; eval() { echo no; }; printf() { echo no; }; cd() { echo no; }; unset() { echo no; }
        alias read='echo no' printf='echo no' eval='echo no' sh='echo no' cat='echo no' cd='echo no'
    """,
    "fish": r"""
        echo Welcome!; printf 'no newline'; echo complaint >&2
        function cat; echo no; end
        function printf; echo no; end
        alias sh 'echo no'
        set -gx IFS ex0
        set -gx PATH "/odd folder/it's" $PATH relative
        set -gx TRACE '$(id)'
        cd /usr
        umask 0
    """,
    "tcsh": r"""
        echo 'Welcome\!'; printf 'no newline'
        setenv IFS ex0
        setenv PATH "/odd folder/it's::${PATH}:relative"
        setenv TRACE '$(id)'; setenv POSIXLY_CORRECT 1
        alias sh 'echo no'; alias read 'echo no'; alias printf 'echo no'; alias eval 'echo no'
        set noglob noclobber
        onintr -
        cd /usr
        umask 0
    """,
}
SURROUNDINGS = {"CDPATH": "/usr", "PS4": "$(id)", "BLOCK_SIZE": "human-readable", "LANG": "xx"}
LOCALES = {"dash": "xx_YY.UTF-8", "busybox": "C.UTF-8", "bash": "C.UTF-8", "bash, in Chinese": "zh_CN.GB18030"}


@pytest.fixture(params=LOCALES)
def lived_in(request: pytest.FixtureRequest, login: Login, sshd: Sshd) -> Iterator[dict[str, str]]:
    """The login's surroundings: start-up files with a will of their own, an odd environment, another `sh`."""
    if login.shell == OWN:
        pytest.skip("whoever runs the tests keeps the start-up files as they are")
    shell = request.param.partition(",")[0]
    surroundings = SURROUNDINGS | {
        "PATH": f"{tools(shell, sshd.folder)}:/usr/bin:/bin",
        "LC_ALL": LOCALES[request.param],
    }
    if shell != request.param:
        surroundings["LOCPATH"] = str(locale_of_many_bytes(sshd.folder / "locales", LOCALES[request.param]))
    lines = [f"{name}={value}\n" for name, value in surroundings.items()]
    (login.home / ".ssh/environment").write_text("".join(lines))
    (login.home / ".ssh/rc").write_text("echo Hello from rc; printf 'no newline'\n")
    file = login.account.write_startup(textwrap.dedent(HABITS.get(login.shell, "")))
    try:
        yield surroundings | ({"TRACE": "$(id)"} if login.shell in HABITS else {})
    finally:
        file.write_text("")
        (login.home / ".ssh/environment").unlink()
        (login.home / ".ssh/rc").unlink()


def tools(shell: str, folder: Path) -> Path:
    """A folder with a certain `sh`; of busybox with all its other tools, but a `tail` that is quicker to wait."""
    place = folder / f"{shell}'s tools"
    if not place.exists():
        place.mkdir()
        program = need(shell)
        applets = subprocess.check_output([program, "--list"], text=True).split() if shell == "busybox" else ["sh"]
        for applet in applets:
            (place / applet).symlink_to(need("tail") if applet == "tail" else program)
    return place


def locale_of_many_bytes(folder: Path, name: str) -> Path:
    """Make a locale with nothing but its encoding. In this one, a quote may belong to the character before it."""
    if not folder.exists():
        folder.mkdir()
        letters = [f"<U{code:04X}>" for code in range(128)]
        encoding = [
            f"<code_set_name> {name.partition('.')[2]}",
            "<escape_char> /",
            "<mb_cur_min> 1",
            "<mb_cur_max> 4",
        ]
        codes = [f"{letter} /x{code:02x}" for code, letter in enumerate(letters)]
        order = ["LC_COLLATE", "order_start forward", *letters, "order_end", "END LC_COLLATE"]
        (folder / "letters").write_text("\n".join([*encoding, "CHARMAP", *codes, "END CHARMAP\n"]))
        (folder / "definition").write_text(
            "\n".join(["LC_CTYPE", "cntrl <U0000>..<U001F>", "END LC_CTYPE", *order, ""])
        )
        made = [
            need("localedef"),
            "--no-archive",
            "--force",
            "--quiet",
            "-i",
            "definition",
            "-f",
            "./letters",
            f"./{name}",
        ]
        subprocess.run(made, cwd=folder, check=False)  # it complains about all that is left out
        assert (folder / name / "LC_CTYPE").exists()
    return folder


@settings(DETERMINISTIC, max_examples=1, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(GIVEN)
@example(SAMPLE)
def test_a_shell_that_is_lived_in_passes_everything_on(
    login: Login, lived_in: dict[str, str], given: Given
) -> None:
    assert passed_on(login, given).is_what_was(replace(given, stdin=b""))
    shown = started(login, given)
    assert shown.is_what_was(given)
    assert lived_in["PATH"] in shown.env["PATH"]
    lived_in = lived_in | {"PATH": shown.env["PATH"]} | given.env
    assert lived_in.items() <= shown.env.items()
    assert all(modes(spool) == {"dir": {0o700}, "file": {0o600}} for spool in (login.home / "spools").iterdir())


def test_a_turn_is_ended_although_a_start_up_file_has_all_signals_ignored(login: Login) -> None:
    if login.shell != "bash":
        pytest.skip("of the shells that read a file before a command, only bash can have them ignored")
    login.account.write_startup("trap '' HUP INT TERM USR1 USR2\n")

    async def cancelled() -> tuple[int, Exit | None]:
        agent = Command(("sh", "-c", "echo $$; exec sleep 300"), "/", stop=STOP)
        async with Follower(login.host, login.spool(), agent, lease=Lease(6, 1.0)) as turn:
            pid = int((await anext(turn)).lines[0])
            await turn.cancel()
            await drain(turn)
            return pid, turn.exit

    pid, end = login.do(cancelled())
    assert end == Exit(137, "cancel")
    assert not runs(pid)
