"""The dashboard for Grafana: its queries are valid PromQL on metrics that a broker has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from promql_parser import VectorSelector

from broker.config.settings import Settings
from tests.broker.conftest import running
from tests.broker.handlers.test_monitoring import PATH, forecast, samples

DASHBOARD = json.loads((Path(__file__).parents[3] / "deploy" / "grafana" / "coget.json").read_text())
UNITS = {"Bps", "percentunit", "short", "s", "none", "reqps"}


def questions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m").replace("$job", "coget")


def asked(question: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Return the metrics in a query, with the labels that it distinguishes."""
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(question), found.append)
    for each in found:
        if isinstance(each, VectorSelector):
            yield each.name, frozenset(matcher.name for matcher in each.matchers.matchers) - {"job"}


@pytest.mark.parametrize("question", list(questions()))
def test_each_question_is_promql(question):
    assert list(asked(question))


def test_every_panel_has_a_description_and_a_unit():
    assert DASHBOARD["schemaVersion"] >= 41
    for panel in DASHBOARD["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"datasource", "job"}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_broker_has_each_metric_that_is_asked_for(database):
    async with running(Settings(database)) as broker:
        await forecast(broker)
        had: dict[str, set[str]] = {}
        for name, labels in samples((await (await broker.client("reader")).get(PATH)).text):
            had.setdefault(name, set()).update(label for label, _ in labels)
    for question in questions():
        for name, labels in asked(question):
            assert labels <= had[name], question
