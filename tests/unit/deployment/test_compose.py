"""What compose.yaml and the Dockerfile say."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.needs import missing
from tests.support.places import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OURS = {"runturn": "runturn", "runturn-host": "host"}  # images that are built here, and their targets

each_service = pytest.mark.parametrize("name", SERVICES)


def test_it_follows_the_compose_specification() -> None:
    spec = importlib.util.find_spec("check_jsonschema")
    if spec is None or spec.origin is None:
        missing("the schema is in the package check-jsonschema, which is not installed")
    schema = Path(spec.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


@each_service
def test_every_image_is_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?(-\w+)?", tag), "no exact version"
    assert image.count("/") <= 1, "an image of the default registry has no host in its name"
    if "build" in SERVICES[name]:
        assert tag == VERSION
        assert SERVICES[name]["build"] == {"context": ".", "target": OURS[image]}
        assert SERVICES[name]["pull_policy"] == "build"


@each_service
def test_no_service_has_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    user, _, group = service["user"].partition(":")
    assert user.isdigit() and group.isdigit() and int(user) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices", "extra_hosts"} & service.keys()
    assert not any("docker.sock" in volume for volume in service.get("volumes", ()))


@each_service
def test_every_service_is_watched_limited_and_started_again(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries", "start_period"} <= service["healthcheck"].keys()
    assert service["restart"] == "unless-stopped"
    assert service["stop_grace_period"]
    assert {"cpus", "memory", "pids"} == service["deploy"]["resources"]["limits"].keys()
    for other, condition in service.get("depends_on", {}).items():
        assert condition == {"condition": "service_healthy"} and other in SERVICES


@each_service
def test_ports_are_published_on_loopback_only(name: str) -> None:
    ports = SERVICES[name].get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
    # Docker publishes no port of a container that is in internal networks only.
    internal = {network for network, settings in COMPOSE["networks"].items() if (settings or {}).get("internal")}
    assert not ports or set(SERVICES[name]["networks"]) - internal


def test_agents_reach_neither_broker_nor_ledger() -> None:
    assert not set(SERVICES["host1"]["networks"]) & set(SERVICES["valkey"]["networks"])
    assert not set(SERVICES["host1"]["networks"]) & set(SERVICES["postgres"]["networks"])
    assert secrets("host1") == {"ssh_client_key.pub"}


def test_every_file_that_is_mounted_is_in_the_repository() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    files = [path for path in mounted if path.startswith(".")]
    files += [config["file"] for config in COMPOSE["configs"].values()]
    assert files
    for file in files:
        assert (ROOT / file).exists(), file
    named = {path for path in mounted if not path.startswith(".")}
    assert named == COMPOSE["volumes"].keys()
    used = {config["source"] for service in SERVICES.values() for config in service.get("configs", ())}
    assert used == COMPOSE["configs"].keys()


def test_secrets_never_get_into_the_repository() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert "/secrets/" in ignored


def test_no_variable_of_a_service_holds_a_secret() -> None:
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|TOKEN|KEY", name):
                assert str(value).startswith("/run/secrets"), name
            assert "@" not in str(value), "a URL with a login belongs into a file"


def test_prometheus_asks_the_services_that_there_are() -> None:
    document = yaml.safe_load((ROOT / "ops/prometheus/prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in document["scrape_configs"]}
    assert {"runturn-worker", "runturn-exporter", "flower"} <= jobs.keys()
    targets = {
        name: [target.split(":")[0] for group in job["static_configs"] for target in group["targets"]]
        for name, job in jobs.items()
    }
    workers = [name for name, service in SERVICES.items() if service.get("command") == ["worker"]]
    assert targets["runturn-worker"] == workers
    assert (targets["runturn-exporter"], targets["flower"]) == (["exporter"], ["flower"])
    assert jobs["flower"]["basic_auth"]["password_file"] == "/run/secrets/flower_password"
    assert "flower_password" in secrets("prometheus")


def test_the_images_run_as_nobody_special_and_hold_no_compiler() -> None:
    for stage in (stage for stage in _stages() if stage.startswith(("runturn", "worker", "host"))):
        users = re.findall(r"^USER (\S+)$", _stages()[stage], re.MULTILINE)
        assert users and users[-1] not in ("0:0", "root"), stage
    assert not re.search(r"\b(gcc|build-essential|make|curl|ADD)\b", DOCKERFILE)
    assert set(OURS.values()) <= _stages().keys()


def test_image_without_agents_leaves_out_the_program_in_the_sdk() -> None:
    assert "rm -rf /opt/runturn/lib/python3.*/site-packages/claude_agent_sdk/_bundled" in _stages()["built"]


def test_every_package_in_the_images_is_locked_by_its_hash() -> None:
    installs = re.findall(r"pip (?:--python \S+ )?install (.*?)(?=&&|\n[A-Z]|\Z)", DOCKERFILE, re.DOTALL)
    assert len(installs) == 4
    ours = [install for install in installs if "dist/runturn" in install]
    assert all(
        "--require-hashes" in install and "--only-binary" in install for install in installs if install not in ours
    )
    assert len(ours) == 1 and "--no-deps" in ours[0]
    for name in re.findall(r"\(([\w|-]+)\)==|/\^([\w-]+)==/", DOCKERFILE):
        for package in "".join(name).split("|"):
            assert re.search(rf"^{package}==", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE), package


def test_what_the_images_copy_is_let_into_the_build() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word.split("/")[0]
        for line in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for word in line.split()
    }
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)


def secrets(service: str) -> set[str]:
    given = SERVICES[service].get("secrets", ())
    return {secret if isinstance(secret, str) else secret["source"] for secret in given}


def _stages() -> dict[str, str]:
    parts = re.split(r"^FROM .* AS (\w+)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
