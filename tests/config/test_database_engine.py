"""Engine profiles: how a server is recognized, and whether it serves writes, by the variables that it shows."""

from __future__ import annotations

from pathlib import Path

from app import database_engine
from app.config import DATABASE_ENGINES, load
from tests.support.cases import each

GROUP = "8ebf6b40-7d6c-4d3e-9c1c-1f1d5a0a0001"


class Server:
    """A cursor on a server that shows these variables."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables
        self._shown: list[tuple[str, str]] = []

    def execute(self, statement: str) -> None:
        self._shown = [item for item in self._variables.items() if f"'{item[0]}'" in statement]

    def fetchall(self) -> list[tuple[str, str]]:
        return self._shown


@each(
    ("variables", "engine"),
    [
        ({}, "single"),
        ({"wsrep_on": "OFF"}, "single"),
        ({"wsrep_on": "ON"}, "galera"),
        ({"group_replication_group_name": ""}, "single"),
        ({"group_replication_group_name": GROUP}, "group-replication"),
        ({"aurora_version": "3.08.0"}, "aurora"),
    ],
)
def test_engine_is_recognized_by_its_variables(variables: dict[str, str], engine: str) -> None:
    assert database_engine.detect(Server(variables)) == engine


def test_every_engine_of_the_setting_has_a_profile(tmp_path: Path) -> None:
    assert {*database_engine.PROFILES, database_engine.AUTO} == set(DATABASE_ENGINES)
    assert load({"GATEHOUSE_INSTANCE": str(tmp_path)}).database_engine == database_engine.AUTO


GALERA = {"wsrep_on": "ON", "wsrep_ready": "ON", "wsrep_cluster_status": "Primary", "read_only": "OFF"}


@each(
    ("variables", "reason"),
    [
        ({"read_only": "OFF", "innodb_read_only": "OFF", "wsrep_on": "OFF"}, None),
        (GALERA, None),
        (GALERA | {"read_only": "ON"}, "read_only is ON"),
        ({"super_read_only": "ON"}, "super_read_only is ON"),
        ({"innodb_read_only": "ON"}, "innodb_read_only is ON"),
        (GALERA | {"wsrep_ready": "OFF"}, "wsrep_ready is OFF"),
        (GALERA | {"wsrep_cluster_status": "non-Primary"}, "wsrep_cluster_status is non-Primary"),
    ],
)
def test_unwritable_node_says_why(variables: dict[str, str], reason: str | None) -> None:
    assert database_engine.why_not_writable(Server(variables)) == reason
