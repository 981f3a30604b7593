"""Addresses are built as Werkzeug builds them, by code that is made when it is first asked for."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from werkzeug.routing import Map, Rule

from app import Gatehouse
from app.web.routes import Route


@pytest.mark.parametrize(
    "values",
    [
        {"organization": "a b/ü", "number": 7},
        {"organization": "x", "number": 7, "q": "1&2", "sort": ["a", "b"]},
    ],
)
def test_an_address_is_that_of_a_plain_rule(values: dict[str, Any]) -> None:
    path = "/organizations/<organization>/<int:number>/page"
    built = [
        Map([kind(path, endpoint="page")]).bind("a.example").build("page", dict(values))
        for kind in (Route, Rule)
    ]
    assert built[0] == built[1]
    assert "/7/page" in built[0]


def test_nothing_is_compiled_before_an_address_is_asked_for() -> None:
    with mock.patch.object(
        Rule, "_compile_builder", autospec=True, side_effect=Rule._compile_builder
    ) as compiled:
        routes = Map([Route("/one/<x>", endpoint="one"), Route("/two/<x>", endpoint="two")]).bind("a.example")
        assert compiled.call_count == 0
        assert [routes.build("one", {"x": "1"}), routes.build("one", {"x": "2"})] == ["/one/1", "/one/2"]
        assert compiled.call_count == 1
    assert Gatehouse.url_rule_class is Route
