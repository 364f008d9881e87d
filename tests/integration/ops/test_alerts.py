"""The alert rules are sound on paper: promtool accepts them, their tests pass, and they speak of what there is."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric

from ops.ledger import Ledger
from ops.metrics import Dependencies, LedgerCollector, Vocabulary, WorkerMetrics, new_registry
from tests.support.needs import need
from tests.support.places import ROOT
from workers.cli.main import cli

RULES = ROOT / "ops" / "prometheus" / "rules.yml"
TESTS = (RULES.with_name("rules.test.yml"), RULES.with_name("rules.day.test.yml"))
RUNBOOK = ROOT / "docs" / "operating.md"
EVERYWHERE = {"job", "instance"}  # labels that Prometheus itself gives to all that it scrapes

GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ENTRIES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in ENTRIES if "alert" in rule}
RECORDS = {rule["record"]: rule for rule in ENTRIES if "record" in rule}
EXPRESSIONS = {rule.get("alert", rule.get("record")): rule["expr"] for rule in ENTRIES}


def promtool(*arguments: str | Path) -> str:
    said = subprocess.run([need("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(ENTRIES)} rules found" in promtool("check", "rules", RULES)


def test_unit_tests_pass() -> None:
    promtool("test", "rules", *TESTS)


def test_unit_tests_evaluate_groups_in_the_order_of_the_file() -> None:
    for file in TESTS:
        assert yaml.safe_load(file.read_text())["group_eval_order"] == [group["name"] for group in GROUPS]


def test_every_alert_has_a_unit_test() -> None:
    tests = [test for file in TESTS for test in yaml.safe_load(file.read_text())["tests"]]
    expected = {
        sample["labels"]
        for test in tests
        for check in test["promql_expr_test"]
        for sample in check.get("exp_samples", ())
    }
    assert expected == {f'{{alertname="{name}"}}' for name in ALERTS}


@pytest.mark.parametrize("name", ALERTS)
def test_alert_says_what_it_means_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/operating.md#{name.lower()}"


def test_runbook_has_a_section_for_every_alert_and_no_other() -> None:
    headings = re.findall(r"^### (Runturn\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert headings == list(ALERTS)  # in the same order; an anchor is its heading in lower case


@pytest.mark.parametrize("name", ALERTS)
def test_runbook_section_has_its_three_parts(name: str) -> None:
    section = RUNBOOK.read_text().partition(f"\n### {name}\n")[2].partition("\n#")[0]
    assert re.findall(r"^\*\*([\w ]+)\.\*\*", section, re.MULTILINE) == ["Meaning", "Check", "Action"]


def test_commands_are_those_of_the_program() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL)
    said = [line for line in "".join(blocks).splitlines() if line.startswith("runturn ")]
    commands = [*said, *re.findall(r"`(runturn [^`]+)`", RUNBOOK.read_text())]
    assert len(commands) > 40
    for line in commands:
        _, *words = shlex.split(line, comments=True)
        command: click.Command | None = cli
        while words and isinstance(command, click.Group):
            name, *words = words
            command = command.get_command(click.Context(command), name)
        assert command is not None, line
        command.make_context(line, words, resilient_parsing=True)


def test_links_lead_somewhere() -> None:
    anchors = {re.sub(r"\W", "-", title.lower()) for title in re.findall(r"^#+ (.+)$", RUNBOOK.read_text(), re.M)}
    for path in re.findall(r"\]\((\S+)\)", RUNBOOK.read_text()):
        file, _, anchor = path.partition("#")  # those of other documents: tests/unit/docs/test_links.py
        assert (RUNBOOK.parent / file).exists() if file else anchor in anchors, path


def test_runbook_queries_are_of_metrics_that_there_are(metrics: dict[str, set[str]]) -> None:
    blocks = re.findall(r"^```promql\n(.*?)^```$", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for query in "".join(blocks).splitlines():  # one a line
        _check(query, metrics)


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of all series that there can be, by name."""
    worker, fleet = new_registry(), new_registry()
    WorkerMetrics(worker, Vocabulary())
    with Ledger.open(f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.sqlite3") as ledger:
        collector = LedgerCollector(ledger, Vocabulary(), lambda: 0.0)
        Dependencies(fleet)
        families = list(collector.describe())
    found = {name: labels for registry in (worker, fleet) for name, labels in _own(registry)}
    found |= {name: labels for family in families for name, labels in _described(family)}
    summed = {name: re.match(r"sum by \(([\w, ]+)\)", rule["expr"]) for name, rule in RECORDS.items()}
    recorded = {name: set(by[1].split(", ")) if by else set() for name, by in summed.items()}
    scraped = {name: labels | EVERYWHERE for name, labels in found.items()}
    process = {sample.name: EVERYWHERE for family in worker.collect() for sample in family.samples}
    return {**process, **scraped, **recorded, "up": EVERYWHERE}


def _own(registry: CollectorRegistry) -> Iterator[tuple[str, set[str]]]:
    for collector in registry._collector_to_names:
        if isinstance(collector, Counter | Gauge | Histogram):
            labels = set(collector._labelnames)
            yield from _series(next(iter(collector.describe())), labels)


def _described(family: Metric) -> Iterator[tuple[str, set[str]]]:
    yield from _series(family, set(family._labelnames))  # type: ignore[attr-defined]


def _series(family: Metric, labels: set[str]) -> Iterator[tuple[str, set[str]]]:
    if family.type == "counter":
        yield f"{family.name}_total", labels
    elif family.type == "histogram":
        yield f"{family.name}_bucket", labels | {"le"}
        yield f"{family.name}_sum", labels
        yield f"{family.name}_count", labels
    else:
        yield family.name, labels


def _check(expression: str, metrics: dict[str, set[str]]) -> None:
    """Fail for a metric or a label that nothing has."""
    selectors: list[Any] = []
    groupings: set[str] = set()

    def visit(node: Any) -> None:
        match node:
            case promql_parser.VectorSelector():
                selectors.append(node)
            case promql_parser.MatrixSelector():
                selectors.append(node.vector_selector)
            case promql_parser.AggregateExpr() if node.modifier:
                groupings.update(node.modifier.labels)
            case promql_parser.BinaryExpr() if node.modifier and node.modifier.matching:
                groupings.update(node.modifier.matching.labels)

    promql_parser.walk(promql_parser.parse(expression), visit)
    assert selectors
    for selector in selectors:
        assert selector.name in metrics
        assert {matcher.name for matcher in selector.matchers.matchers} <= metrics[selector.name], expression
    assert groupings <= set().union(*(metrics[selector.name] for selector in selectors)), expression


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_rule_asks_for_metrics_and_labels_that_there_are(name: str, metrics: dict[str, set[str]]) -> None:
    _check(EXPRESSIONS[name], metrics)


def test_check_finds_what_there_is_not(metrics: dict[str, set[str]]) -> None:
    for wrong in ("runturn_turns", 'sum(runturn_turns_total{host="a"})', "sum by (model) (runturn_dead_letters)"):
        with pytest.raises(AssertionError):
            _check(wrong, metrics)


def test_alert_texts_name_labels_that_their_expressions_keep() -> None:
    for name, alert in ALERTS.items():
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([\w, ]*)\)", alert["expr"]))))
        assert named <= grouped | EVERYWHERE | {"agent", "budget"}, name
