"""Unprivileged accounts to log in to, each with the login shell that a test chooses."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.needs import need, need_root
from tests.support.waiting import until

SHELLS = ("bash", "dash", "fish", "tcsh", "busybox")
_ROOT = Path("/var/lib/runturn-tests")  # fixed, since it holds the locks and the homes of accounts that stay
_STARTUP = {
    "bash": ".bashrc",  # read for commands too when the parent is an sshd
    "dash": ".profile",  # read for interactive logins only, as is busybox's
    "fish": ".config/fish/config.fish",
    "tcsh": ".tcshrc",
    "busybox": ".profile",
}


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody who can log in."""

    name: str
    uid: int
    gid: int
    home: Path
    shell: str  # the path of the login shell

    def write_startup(self, text: str) -> Path:
        """Make `text` what the login shell runs when it starts; return the file."""
        assert _ROOT in self.home.parents, f"the home of {self.name} is a real one"
        kind = self.name.split("-")[1]
        file = self.home / _STARTUP[kind]
        self.own(file.parent)
        file.write_text(text)
        os.chown(file, self.uid, self.gid)
        return file

    def own(self, folder: Path) -> Path:
        """Make a folder below the home, with all that lead to it, and give it to the account."""
        for place in reversed([folder, *folder.parents]):
            if self.home in (place, *place.parents):
                place.mkdir(mode=0o755, exist_ok=True)
                os.chown(place, self.uid, self.gid)
        return folder


def own_account() -> Account:
    """The account that runs the tests, with its real home (on an `Sshd`, it has that one's `home`)."""
    entry = pwd.getpwuid(os.geteuid())
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir), entry.pw_shell)


@contextlib.contextmanager
def account(shell: str) -> Iterator[Account]:
    """Have an account with this login shell for oneself: its home is new, and no process of it runs.

    Accounts stay on the machine when tests end, without a password and an authorised key: to remove one
    from /etc/passwd fails as long as any process of it is left. The next test that wants one uses it again.
    """
    need_root()
    _ROOT.mkdir(mode=0o755, exist_ok=True)
    assert _ROOT.owner() == "root", f"{_ROOT} belongs to somebody else"
    program = _login_shell(shell)
    for number in range(1, 100):
        name = f"runturn-{shell}-{number}"
        with (_ROOT / f"{name}.lock").open("w") as lock:
            if not _locked(lock):
                continue  # another test has this one
            taken = _registered(name, program)
            try:
                _make_home(taken)
                yield taken
            finally:
                _leave(taken)
            return
    raise AssertionError(f"a hundred accounts with {shell} are in use; do tests hang?")


def clear() -> None:
    """Remove what killed tests have left of accounts that nobody uses just now."""
    for file in _ROOT.glob("*-*.lock"):
        with file.open("w") as lock, contextlib.suppress(KeyError):
            if _locked(lock):
                entry = pwd.getpwnam(file.stem)
                _leave(Account(entry.pw_name, entry.pw_uid, entry.pw_gid, _ROOT / file.stem, entry.pw_shell))


def _login_shell(shell: str) -> str:
    """The path that goes into /etc/passwd. What busybox is depends on the name by which it is called."""
    program = need(shell)
    if shell != "busybox":
        return program
    link = _ROOT / "busybox" / "sh"
    link.parent.mkdir(mode=0o755, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(program)
    return str(link)


def _locked(lock: IO[str]) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _registered(name: str, shell: str) -> Account:
    """Find the account in /etc/passwd, or enter it there; `*` is a password that lets nobody in but by a key."""
    home = _ROOT / name
    about = ["--home-dir", str(home), "--shell", shell, "--password", "*"]
    with (_ROOT / "passwd.lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            _run(need("useradd"), "--system", "--user-group", "--no-create-home", *about, name)
            entry = pwd.getpwnam(name)
        if (entry.pw_dir, entry.pw_shell) != (str(home), shell):
            _run(need("usermod"), "--home", *about[1:], name)
    return Account(name, entry.pw_uid, entry.pw_gid, home, shell)


def _make_home(account: Account) -> None:
    _leave(account)
    account.own(account.home)
    account.own(account.home / ".ssh").chmod(0o700)


def _leave(account: Account) -> None:
    """Remove what a test left behind: processes first, since they could write on."""
    until(lambda: not _killed(account), f"the end of the processes of {account.name}")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(account.home)


def _killed(account: Account) -> list[int]:
    """Kill all processes of an account; return their pids."""
    found, real_uid = [], f"\nUid:\t{account.uid}\t"
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            said = status.read_text(errors="replace")
            if real_uid in said and "\nState:\tZ" not in said:
                found.append(int(status.parent.name))
                os.kill(found[-1], signal.SIGKILL)
    return found


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr}")
