"""The dashboard, the alerts and their documentation name what the service exports.

``script/test monitoring`` is the long form: a real Prometheus scrapes a server under load.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.metrics import FAMILIES, HISTOGRAM
from tests.journeys.monitoring import FOLDER, dashboard_queries

pytestmark = pytest.mark.either
PAGE = (FOLDER.parent / "monitoring.md").read_text()
ALERTS = (FOLDER / "alerts.yml").read_text()
TESTS = (FOLDER / "alerts.test.yml").read_text()
SAMPLES = {
    sample: {*family.labels, *({"le"} if family.kind == HISTOGRAM else ())}
    for family in FAMILIES
    for sample in (
        [f"{family.name}_{part}" for part in ("bucket", "count", "sum")]
        if family.kind == HISTOGRAM
        else [family.name]
    )
}
# Added by Prometheus.
OF_PROMETHEUS = {"instance", "job"}


def queries() -> list[str]:
    """Return the expressions of the dashboard and the alerts."""
    alerts = re.findall(r"expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", ALERTS)
    return [*dashboard_queries(), *(block or line for block, line in alerts)]


def test_each_query_names_exported_metrics_and_their_labels() -> None:
    assert len(queries()) > 40
    for query in queries():
        names = set(re.findall(r"gatehouse_\w+", query))
        assert names <= SAMPLES.keys(), query
        known = OF_PROMETHEUS.union(*(SAMPLES[name] for name in names))
        used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query))
        for listed in re.findall(r"by \(([\w, ]+)\)", query):
            used |= set(listed.replace(" ", "").split(","))
        assert used <= known, query


def test_each_metric_is_on_the_dashboard_and_on_the_page() -> None:
    shown = " ".join(dashboard_queries())
    for family in FAMILIES:
        assert family.name in shown, family.name
        assert f"| `{family.name}` | {', '.join(family.labels)}{' ' if family.labels else ''}|" in PAGE
    assert set(re.findall(r"^\| `(gatehouse_\w+)`", PAGE, re.MULTILINE)) == {
        family.name for family in FAMILIES
    }


def test_each_alert_is_explained_and_has_a_case_in_which_it_fires_and_one_in_which_not() -> None:
    alerts = re.findall(r"alert: (\w+)", ALERTS)
    assert alerts == re.findall(r"^\*\*(\w+)\*\*:", PAGE, re.MULTILINE)
    fires = re.findall(r"- alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:\n +- exp_labels", TESTS)
    assert alerts == list(dict.fromkeys(fires))
    assert alerts == re.findall(r"\{alertname: (\w+), eval_time: \w+, exp_alerts: \[\]\}", TESTS)


def test_dashboard_imports_into_grafana() -> None:
    """The parts that Grafana needs to import a dashboard: unique panels on its grid, without a fixed data source."""
    dashboard: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    panels = dashboard["panels"]
    assert dashboard["schemaVersion"] >= 39 and "id" not in dashboard
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)\b", json.dumps(panels))) <= variables


def test_sample_configuration_scrapes_the_documented_address() -> None:
    assert 'targets: ["127.0.0.1:9464"]' in (FOLDER / "prometheus.yml").read_text()
    assert "GATEHOUSE_METRICS_ADDRESS=127.0.0.1:9464" in PAGE
    assert {path.name for path in Path(FOLDER).iterdir()} == set(re.findall(r"\(monitoring/([\w.]+)\)", PAGE))
