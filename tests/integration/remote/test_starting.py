from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.command import Command, Signal
from adapters.isolation import Isolation
from remote.errors import SpawnRefused
from tests.support.ssh.laboratory import Lab, drain, read_until

PRINT_ARGUMENTS = (
    "import sys, os; sys.stdout.buffer.write(b''.join(os.fsencode(a) + b'\\0' for a in sys.argv[1:]))"
)
HOSTILE = st.text(st.characters(exclude_categories=()).filter(lambda c: c != "\0"), max_size=20).map(
    lambda text: os.fsdecode(text.encode("utf-8", "replace"))
) | st.binary(max_size=20).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
SHELL_WORDS = st.sampled_from(
    ["", "'", '"', "$(id)", "`id`", "\\", "\\n", "\n", "\t", "*", "~", "!", "-n", "--", "%s", "\\0101"]
)


async def test_output_and_exit_arrive(any_lab: Lab) -> None:
    output, end = await any_lab.run(any_lab.sh("echo out; cat; echo err >&2; exit 7", stdin=b"prompt\n"))
    assert output == b"out\nprompt\n"
    assert (end.code, end.reason) == (7, "exit")
    await any_lab.nothing_left(any_lab.spools[0])


async def test_two_simultaneous_starts_of_one_spool_run_one_agent(any_lab: Lab) -> None:
    spool = any_lab.spool()
    command = any_lab.sh("echo x >>runs; cat; sleep 0.3; echo done", stdin=b"C\n" * 5000)
    ends = await asyncio.gather(*(any_lab.run(command, spool) for _ in range(6)))
    assert (any_lab.workspace / "runs").read_text() == "x\n"
    assert {output for output, _ in ends} == {b"C\n" * 5000 + b"done\n"}
    assert {(end.code, end.reason) for _, end in ends} == {(0, "exit")}
    assert [place.name for place in any_lab.root.iterdir()] == [spool.id]


async def test_a_start_that_was_never_answered_is_repeated_and_runs_one_agent(lab: Lab) -> None:
    lab.host.dead_letters = 3
    lab.host.refusals = 1
    output, end = await lab.run(lab.sh("echo x >>runs; cat", stdin=b"prompt\n" * 100_000))
    assert output == b"prompt\n" * 100_000
    assert end.code == 0
    assert (lab.workspace / "runs").read_text() == "x\n"


async def test_a_second_start_of_an_ended_turn_only_replays_it(lab: Lab) -> None:
    spool, command = lab.spool(), lab.sh("echo x >>runs; echo hello; exit 3")
    first = await lab.run(command, spool)
    lab.workspace.rename(lab.folder / "gone")
    assert await lab.run(command, spool) == first
    assert (lab.folder / "gone" / "runs").read_text() == "x\n"


@pytest.mark.parametrize(
    ("cwd", "code"),
    [("missing", "workspace_missing"), ("file", "workspace_not_directory"), ("dangling", "workspace_missing")],
)
async def test_a_workspace_that_cannot_be_used_is_refused(any_lab: Lab, cwd: str, code: str) -> None:
    (any_lab.workspace / "file").write_text("")
    (any_lab.workspace / "dangling").symlink_to("nowhere")
    place = f"{any_lab.workspace}/{cwd}"
    with pytest.raises(SpawnRefused, match=place) as refusal:
        await any_lab.run(any_lab.sh("echo hi", cwd=place, stdin=b"p" * 1_000_000))
    assert refusal.value.code == code
    assert not any_lab.root.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every directory")
async def test_a_workspace_that_may_not_be_entered_is_refused(any_lab: Lab) -> None:
    any_lab.workspace.chmod(0o600)
    with pytest.raises(SpawnRefused) as refusal:
        await any_lab.run(any_lab.sh("echo hi"))
    assert refusal.value.code == "workspace_not_enterable"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("no-such-agent", "agent_not_found"),
        ("check_agent", "agent_not_found"),  # a function of our own script
        ("export", "agent_not_found"),  # a builtin
        ("/no/such/agent", "agent_not_found"),
        ("./plain", "agent_not_executable"),
        ("plain", "agent_not_executable"),
        ("/", "agent_not_executable"),
    ],
)
async def test_an_agent_that_cannot_be_run_is_refused(any_lab: Lab, program: str, code: str) -> None:
    (any_lab.workspace / "plain").write_text("#!/bin/sh\n")
    environment = {"PATH": f"{any_lab.path}:{any_lab.workspace}"}
    with pytest.raises(SpawnRefused) as refusal:
        await any_lab.run(any_lab.command(program, env=environment))
    assert refusal.value.code == code


async def test_an_agent_is_found_in_its_own_path_and_beside_it(any_lab: Lab) -> None:
    tools = any_lab.folder / "my tools"
    tools.mkdir()
    for place in (tools / "agent", any_lab.workspace / "agent"):
        place.write_text(f"#!/bin/sh\necho {place.parent.name}\n")
        place.chmod(0o755)
    by_path = any_lab.command("agent", env={"PATH": f"/nowhere:{tools}:{any_lab.path}"})
    assert await any_lab.run(by_path) == (b"my tools\n", (await any_lab.run(any_lab.command("./agent")))[1])
    assert (await any_lab.run(any_lab.command("./agent")))[0] == b"workspace\n"


async def test_a_missing_tool_is_named(lab: Lab, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "head", "mktemp", "tail", "grep", "tr", "wc", "sleep"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    bare = Lab(tmp_path / "bare", str(tools))
    with pytest.raises(SpawnRefused, match="setsid") as refusal:
        await bare.run(bare.command("/usr/bin/true"))
    assert refusal.value.code == "tool_missing"


async def test_a_root_that_cannot_be_made_is_refused(any_lab: Lab) -> None:
    any_lab.root.write_text("a file")
    with pytest.raises(SpawnRefused) as refusal:
        await any_lab.run(any_lab.sh("echo hi"))
    assert refusal.value.code == "spool_unwritable"


async def test_a_spool_that_does_not_exist_cannot_be_followed(any_lab: Lab) -> None:
    with pytest.raises(SpawnRefused) as refusal:
        await any_lab.run(None)
    assert refusal.value.code == "spool_missing"


@pytest.mark.parametrize("name", ["it's", 'a "b" $c `d`', "new\nline", "-dash", "back\\slash", "caf\u00e9 \udcff"])
async def test_a_workspace_may_have_any_name(any_lab: Lab, name: str) -> None:
    place = any_lab.workspace / name
    place.mkdir()
    output, _ = await any_lab.run(any_lab.python("import os; print(ascii(os.getcwd()))", cwd=str(place)))
    assert output.decode().strip() == ascii(str(place))


# Few with much to send: a process of each takes longer than its words do.
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(HOSTILE | SHELL_WORDS, max_size=60))
def test_arguments_arrive_as_they_are(any_lab: Lab, arguments: list[str]) -> None:
    output, _ = asyncio.run(any_lab.run(any_lab.command("printf", "%s\\0", "begin", *arguments)))
    assert output.removesuffix(b"\n") == b"".join(os.fsencode(word) + b"\0" for word in ("begin", *arguments))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.from_regex(r"X_[A-Za-z_0-9]{0,8}", fullmatch=True), HOSTILE | SHELL_WORDS, max_size=40))
def test_the_environment_arrives_as_it_is(any_lab: Lab, values: dict[str, str]) -> None:
    output, _ = asyncio.run(any_lab.run(any_lab.sh("cat /proc/$$/environ", env=values, unset_env=("HOME",))))
    seen = dict(entry.split(b"=", 1) for entry in output.removesuffix(b"\n").split(b"\0") if entry)
    assert {os.fsencode(name): os.fsencode(value) for name, value in values.items()}.items() <= seen.items()
    assert b"HOME" not in seen
    assert not [name for name in seen if name.startswith(b"RUNTURN_") and name != b"RUNTURN_SPOOL"]


async def test_variables_named_like_ours_do_not_confuse_us(any_lab: Lab) -> None:
    ours = "spool root id cwd nonce value draft stat tail IFS CDPATH POSIXLY_CORRECT ENV LC_ALL"
    values = dict.fromkeys(ours.split(), "/strange")
    if any_lab.containment.isolation is Isolation.NAMESPACE:
        del values["IFS"]  # which the shell that is process 1 passes to nobody
    output, end = await any_lab.run(any_lab.command("cat", "/proc/self/environ", env=values))
    assert end.code == 0
    assert {f"{name}=/strange".encode() for name in values} <= set(output.removesuffix(b"\n").split(b"\0"))


async def test_an_environment_a_shell_cannot_set_is_invalid(lab: Lab) -> None:
    for name in ("a-b", "1x", "", "a=b", "RUNTURN_SPOOL"):
        with pytest.raises(ValueError, match="environment variable"):
            await lab.run(lab.sh("true", env={name: "x"}))


@pytest.mark.parametrize(
    "fields",
    [{"argv": ()}, {"argv": ("-x",)}, {"argv": ("a\0",)}, {"cwd": "relative"}, {"stop": (Signal("$(id)", 1),)}],
)
async def test_a_command_no_host_could_run_is_invalid(lab: Lab, fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        await lab.run(replace(Command(argv=("true",), cwd="/"), **fields))


def test_a_start_from_an_offset_is_invalid(lab: Lab) -> None:
    with pytest.raises(ValueError, match="offset 0"):
        lab.follow(lab.spool(), lab.sh("true"), offset=1)


async def test_a_prompt_of_ten_megabytes_arrives(any_lab: Lab) -> None:
    prompt = os.urandom(10_000_000)
    output, _ = await any_lab.run(any_lab.sh("sha256sum", stdin=prompt))
    assert output.split()[0].decode() == hashlib.sha256(prompt).hexdigest()


async def test_the_agent_has_default_signals_a_session_of_its_own_and_the_usual_umask(any_lab: Lab) -> None:
    source = """
import json, os, signal
names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGPIPE", "SIGCHLD")
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({"ignored": int(status["SigIgn"], 16), "blocked": int(status["SigBlk"], 16), "own":
    os.getpid() == os.getpgrp() == os.getsid(0), "umask": os.umask(0), "files": os.listdir("/proc/self/fd")}))
"""
    output, _ = await any_lab.run(any_lab.python(source))
    seen = json.loads(output)
    # What this very process ignores, because whoever started the tests did, nothing can undo.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    python_itself = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert seen["ignored"] & ~python_itself & ~int(status["SigIgn"], 16) == 0
    assert seen["blocked"] == 0
    assert seen["own"]
    os.umask(usual := os.umask(0))
    assert seen["umask"] == usual
    assert sorted(seen["files"]) == ["0", "1", "2", "3"]  # 3 is the listing's own


async def test_secrets_show_neither_in_the_process_list_nor_in_the_spool(any_lab: Lab) -> None:
    spool, secret = any_lab.spool(), "hunter2-very-secret"
    command_lines: set[str] = set()
    command = any_lab.sh("echo begun; while [ ! -e stop ]; do sleep 0.05; done", env={"API_KEY": secret})
    async with any_lab.follow(spool, command) as turn:
        watching = asyncio.create_task(watch_process_list(command_lines))
        await read_until(turn, b"begun")
        (any_lab.workspace / "stop").touch()
        await drain(turn)
        watching.cancel()
    assert any(spool.path in line for line in command_lines)
    assert not [line for line in command_lines if secret in line]
    files = [file for file in Path(spool.path).rglob("*") if file.is_file()]
    assert not [file for file in files if secret.encode() in file.read_bytes()]
    assert Path(spool.path).stat().st_mode & 0o077 == 0


async def watch_process_list(seen: set[str]) -> None:
    while True:
        for command_line in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                seen.add(command_line.read_bytes().decode("utf-8", "replace"))
        await asyncio.sleep(0.001)


async def test_a_start_cut_off_after_its_claim_is_lost_and_not_started_again(lab: Lab) -> None:
    spool, command = lab.spool(), lab.sh("echo x >>runs")
    await lab.run(command, spool)
    await lab.nothing_left(spool)
    for name in ("supervisor", "watcher", "agent", "end", "reason"):
        Path(spool.path, name).write_text(" " * 80 + "\n")
    Path(spool.path, "events").write_text("")
    output, end = await lab.run(command, spool)
    assert (output, end.code, end.reason) == (b"", None, "lost")
    assert (lab.workspace / "runs").read_text() == "x\n"


async def test_start_up_files_may_print(lab: Lab) -> None:
    noisy = lab.folder / "noisy"
    noisy.mkdir()
    (noisy / "sh").write_text(
        '#!/bin/sh\ncase $2 in *read*) printf "Welcome!\\nno newline";; esac\nexec /bin/sh "$@"\n'
    )
    (noisy / "sh").chmod(0o755)
    loud = Lab(lab.folder / "loud", f"{noisy}:/usr/bin:/bin")
    output, end = await loud.run(loud.command("/bin/echo", "hi"))
    assert (output, end.code) == (b"hi\n", 0)
