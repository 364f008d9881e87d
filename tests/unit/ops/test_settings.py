"""Where settings come from, and what is said of those that are no good."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.errors import SettingsError
from ops.settings import load_settings


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in and no configuration anywhere."""
    for name in ("RUNTURN_CONFIG", "RUNTURN_STATE_DIR", "RUNTURN_METRICS_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def test_defaults_are_those_of_the_reference(tmp_path: Path) -> None:
    settings = load_settings()
    agent = settings.agent
    assert (agent.kind, agent.command, agent.max_concurrent_agents) == ("claude-code", None, 10)
    assert (agent.turn_timeout_ms, agent.read_timeout_ms, agent.stall_timeout_ms) == (3_600_000, 5_000, 300_000)
    assert (agent.max_retry_backoff_ms, agent.max_attempts, agent.retry_backoff_ms) == (300_000, 5, 1_000)
    assert agent.max_paid_retries == 1
    assert (agent.stop_grace_ms, agent.lease_ms) == (5_000, 120_000)
    assert (settings.ssh.host_keys, settings.ssh.connect_timeout_ms) == ("accept-new", 30_000)
    assert (settings.broker_url, settings.result_url, settings.ledger_url) == (None, None, None)
    assert (settings.queues, settings.include) == (("runturn",), ())
    assert (settings.host_name, settings.agents, settings.metrics_host) == ("local", {}, "127.0.0.1")
    assert settings.state_dir == tmp_path / "xdg_state_home" / "runturn"


@pytest.mark.parametrize(
    ("ledger_url", "node", "name"),
    [
        ("sqlite:////var/lib/runturn/ledger.db", "build7", "local"),
        ("postgresql://h/db", "build7.example", "build7.example"),
        ("postgresql://h/db", "build 7_", "build-7"),
        ("postgresql://h/db", "", "local"),
    ],
)
def test_own_machine_goes_by_its_node_name_where_others_may_share_the_ledger(
    monkeypatch: pytest.MonkeyPatch, ledger_url: str, node: str, name: str
) -> None:
    monkeypatch.setattr("platform.node", lambda: node)
    monkeypatch.setenv("RUNTURN_LEDGER_URL", ledger_url)
    assert load_settings().host_name == name
    monkeypatch.setenv("RUNTURN_HOST_NAME", "given")
    assert load_settings().host_name == "given"


def test_environment_beats_the_file_field_by_field(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "runturn.toml").write_text(
        'host_name = "builder"\n[agent]\ncommand = "/opt/claude"\nmax_attempts = 2\n'
        '[claude-code]\nmodel = "opus"\nmax_turns = 50\n'
    )
    monkeypatch.setenv("RUNTURN_AGENT__MAX_ATTEMPTS", "7")
    monkeypatch.setenv("RUNTURN_LEDGER_URL", "postgresql://h/db")
    settings = load_settings()
    assert (settings.host_name, settings.agent.command, settings.agent.max_attempts) == (
        "builder",
        "/opt/claude",
        7,
    )
    assert settings.agents["claude-code"].options == {"model": "opus", "max_turns": 50}
    assert settings.ledger_url is not None
    assert settings.ledger_url.get_secret_value() == "postgresql://h/db"


def test_file_is_the_named_one_else_the_local_one_else_the_users(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "xdg_config_home" / "runturn"
    users.mkdir(parents=True)
    (users / "runturn.toml").write_text('host_name = "users"')
    assert load_settings().host_name == "users"
    (nowhere / "runturn.toml").write_text('host_name = "here"')
    assert load_settings().host_name == "here"
    (tmp_path / "named.toml").write_text('host_name = "named"')
    monkeypatch.setenv("RUNTURN_CONFIG", str(tmp_path / "named.toml"))
    assert load_settings().host_name == "named"


def test_options_of_agents_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_AGENTS", '{"claude-code": {"effort": "high"}}')
    assert load_settings().agents["claude-code"].options == {"effort": "high"}


def test_state_directory_is_absolute(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_STATE_DIR", "~/state")
    assert load_settings().state_dir == tmp_path / "home" / "state"
    monkeypatch.setenv("RUNTURN_STATE_DIR", "state")
    assert load_settings().state_dir == nowhere / "state"


def test_empty_variable_is_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_HOST_NAME", "")
    monkeypatch.setenv("RUNTURN_CONFIG", "")
    assert load_settings().host_name == "local"


def test_agents_may_call_runturn_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_SPOOL", "/state/spool/t1.1")
    assert load_settings().host_name == "local"


def test_stall_timeout_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_AGENT__STALL_TIMEOUT_MS", "-1")
    assert load_settings().agent.stall_timeout_ms == -1


def test_passwords_are_in_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_BROKER_URL", "redis://:hunter22@h/0")
    settings = load_settings()
    assert "hunter22" not in f"{settings!r} {settings!s} {settings.model_dump()}"
    assert settings.secrets == {"RUNTURN_BROKER_URL": "redis://:hunter22@h/0"}


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "RUNTURN_BROKER_ULR",
            "x",
            "RUNTURN_BROKER_ULR: broker_ulr: no such setting; did you mean RUNTURN_BROKER_URL?",
        ),
        ("RUNTURN_COLOUR", "x", "RUNTURN_COLOUR: colour: no such setting; settings: RUNTURN_"),
        (
            "RUNTURN_AGENT__LEASE",
            "9",
            "RUNTURN_AGENT__LEASE: agent.lease: no such setting; did you mean lease_ms?",
        ),
        (
            "RUNTURN_AGENT__LEASE_MS",
            "soon",
            "RUNTURN_AGENT__LEASE_MS: agent.lease_ms: Input should be a valid int",
        ),
        (
            "RUNTURN_AGENT__MAX_ATTEMPTS",
            "-3",
            "RUNTURN_AGENT__MAX_ATTEMPTS: agent.max_attempts: Input should be gr",
        ),
        (
            "RUNTURN_METRICS_PORT",
            "70000",
            "RUNTURN_METRICS_PORT: metrics_port: Input should be less than or equal",
        ),
        (
            "RUNTURN_AGENTS",
            '{"codx": {}}',
            "RUNTURN_AGENTS: codx: there is no such agent or setting; did you mean codex?",
        ),
        ("RUNTURN_AGENTS", "opus", "RUNTURN_AGENTS: agents: is not JSON; expected an object or a list"),
        ("RUNTURN_QUEUES", "turns", "RUNTURN_QUEUES: queues: is not JSON"),
        ("RUNTURN_QUEUES", "[]", "RUNTURN_QUEUES: queues: Tuple should have at least 1 item"),
        ("RUNTURN_QUEUES", '["a", "a"]', "RUNTURN_QUEUES: queues: names a queue twice"),
        ("RUNTURN_QUEUES", '["a b"]', "environment: queues.0: String should match pattern"),
        ("RUNTURN_INCLUDE", '["company/tasks.py"]', "environment: include.0: String should match pattern"),
        ("RUNTURN_CONFIG", "/nowhere.toml", "/nowhere.toml: RUNTURN_CONFIG: cannot be read: No such file"),
    ],
)
def test_bad_variable_is_named(variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[agent]\nturn_timeout = 5",
            "runturn.toml: agent.turn_timeout: no such setting; did you mean turn_t",
        ),
        ("[agent]\ncolour = 5", "runturn.toml: agent.colour: no such setting; remove it"),
        ("[agent]\nturn_timeout_ms = 0", "runturn.toml: agent.turn_timeout_ms: Input should be greater"),
        ('colour = "blue"', "runturn.toml: colour: no such setting"),
        ("[agnt]", "runturn.toml: agnt: there is no such agent or setting; did you mean agent?"),
        (
            "[cladue-code]",
            "runturn.toml: cladue-code: there is no such agent or setting; did you mean claude-code?",
        ),
        ("[cook]", "runturn.toml: cook: there is no such agent or setting; agents: claude-code, claude-sdk, "),
        ("host_name = 'a b'", "runturn.toml: host_name: String should match"),
        ("[agent", "runturn.toml: file: is not TOML"),
    ],
)
def test_bad_line_of_the_file_is_named(text: str, message: str, nowhere: Path) -> None:
    (nowhere / "runturn.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value).startswith(message)


def test_value_of_a_bad_secret_is_not_shown(nowhere: Path) -> None:
    (nowhere / "runturn.toml").write_text("broker_url = ['redis://:hunter22@h/0']")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert caught.value.field == "broker_url"
    assert "hunter22" not in str(caught.value)


def test_ssh_hosts_are_addresses_or_tables(nowhere: Path) -> None:
    (nowhere / "runturn.toml").write_text(
        """
        ssh_hosts = [
            "build1",
            "deploy@build2.example:2222",
            { name = "gpu", address = "10.0.0.7", port = 22, identity = "~/key", labels = { gpu = "yes" } },
        ]
        [ssh]
        host_keys = "strict"
        """
    )
    settings = load_settings()
    first, second, third = settings.ssh_hosts
    assert (first.name, first.address) == ("build1", "build1")
    assert (second.name, second.address) == ("build2.example", "deploy@build2.example:2222")
    assert (third.name, third.port, third.labels) == ("gpu", 22, {"gpu": "yes"})
    assert third.identity == Path.home() / "key"
    assert settings.ssh.host_keys == "strict"


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ('["-oProxyCommand=x y@"]', "ssh_hosts.0"),
        ('["a", "b@a"]', "the name a is used twice"),
        ('[{"name":"a","prot":22}]', "ssh_hosts.0.prot: no such setting; did you mean port?"),
        ('[{"name":"a","port":0}]', "ssh_hosts.0.port"),
        ('[{"name":"a","workspace_roots":["srv"]}]', "must be an absolute path"),
        ('[{"name":"a","workspace_roots":["/srv\\n/etc"]}]', "contains a control character"),
        ('[{"name":"a","spool_dir":"spools"}]', "ssh_hosts.0.spool_dir"),
        ('[{"name":"a","max_concurrent_agents":0}]', "ssh_hosts.0.max_concurrent_agents"),
        ('[{"name":"a","env":["A=B"]}]', "ssh_hosts.0.env"),
        ('"a"', "ssh_hosts"),
    ],
)
def test_bad_ssh_host_is_named(hosts: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_SSH_HOSTS", hosts)
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert message in str(error.value)


def test_bad_settings_are_told_all_at_once_and_hosts_by_their_names(nowhere: Path) -> None:
    (nowhere / "runturn.toml").write_text("""
        metrics_port = -1
        [agent]
        lease_ms = 5
        [[ssh_hosts]]
        name = "build1"
        [[ssh_hosts]]
        name = "build2"
        port = 0
        prot = 22
        [[ssh_hosts]]
        port = 22
    """)
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert "runturn.toml: metrics_port: " in str(error.value)
    assert "Also wrong: agent.lease_ms, ssh_hosts.build2.port, ssh_hosts.build2.prot, ssh_hosts.2" in str(
        error.value
    )
