"""Small files beside a command: in its spool before it runs, and named by its arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.command import FILES
from remote.spool import Spool
from tests.support.ssh.laboratory import Lab
from tests.support.ssh.ssh_laboratory import SshLab
from tests.support.ssh.sshd import Sshd

ODD = bytes(range(1, 256))
SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


async def test_files_are_there_before_the_agent_and_nobody_else_may_read_them(any_lab: Lab) -> None:
    spool = any_lab.spool()
    files = {"settings.json": b'{"a": "it\'s $HOME `id` \\\\"}\n\n', "odd": ODD, "empty": b"", "_x-1.sh": b"-n"}
    command = any_lab.sh('cd "$1" && cat settings.json odd empty _x-1.sh', FILES, files=files)
    output, end = await any_lab.run(command, spool)
    assert (output, end.code) == (files["settings.json"] + ODD + b"-n\n", 0)
    assert {Path(spool.path, "files", name).stat().st_mode & 0o777 for name in files} == {0o600}


async def test_arguments_name_the_directory_where_it_really_is(any_lab: Lab) -> None:
    for root in (f'{any_lab.folder}/it\'s a "root" \\ $x', "~/spools 2"):
        spool = Spool(root, "s1", "seal")
        command = any_lab.python(SHOW, FILES, f"--file={FILES}/a b:{FILES}", "plain $HOME")
        output, _ = await any_lab.run(command, spool)
        place = spool.path.replace("~", str(any_lab.home)) + "/files"
        assert json.loads(output) == [place, f"--file={place}/a b:{place}", "plain $HOME"]


async def test_half_a_megabyte_of_files_arrives_over_ssh(lab: Lab, sshd: Sshd, site: SshLab) -> None:
    async with site.pool(site.target(sshd)) as host:
        command = lab.sh('wc -c <"$1"', f"{FILES}/large", files={"large": b"x" * 500_000})
        output, _ = await lab.run(command, host=host)
    assert int(output) == 500_000


async def test_a_second_start_changes_no_file(lab: Lab) -> None:
    spool = lab.spool()
    await lab.run(lab.sh("true", files={"a": b"first"}), spool)
    await lab.run(lab.sh("true", files={"a": b"second"}), spool)
    assert Path(spool.path, "files", "a").read_bytes() == b"first"


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/a", "-n", "a b", "a\nb", "x" * 101, "stop"])
async def test_a_name_that_is_not_plain_is_refused(lab: Lab, name: str) -> None:
    with pytest.raises(ValueError, match="plain name"):
        await lab.run(lab.sh("true", files={name: b""}))


async def test_files_that_cannot_be_passed_are_refused_without_being_shown(lab: Lab) -> None:
    for content, why in ((b"secret\0", "NUL"), (b"secret" * 200_000, "1,048,576")):
        with pytest.raises(ValueError, match=why) as refusal:
            await lab.run(lab.sh("true", files={"a": content}))
        assert "secret" not in str(refusal.value)
