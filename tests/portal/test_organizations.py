"""Organizations by forms, for root's administrators."""

from __future__ import annotations

import re
from typing import Any

import pytest


@pytest.fixture
def operator(make: Any, person: Any) -> Any:
    """An administrator of root, at the portal."""
    return person(make.root())


def test_list_is_searched_filtered_and_paged(make: Any, operator: Any) -> None:
    for number in range(30):
        make.organization(f"tenant-{number:02}", name=f"Tenant {number:02}")

    operator.get("/organizations")
    assert "Tenant 10" in operator.text and "Tenant 29" not in operator.text
    following = re.search(r'href="([^"]+)" rel="next"', operator.page.text)
    assert following
    operator.get(following[1].replace("&amp;", "&"))
    assert "Tenant 29" in operator.text
    operator.get("/organizations?q=tenant-07")
    assert "Tenant 07" in operator.text and "Tenant 08" not in operator.text
    operator.get("/organizations?status=suspended")
    assert "No organization matches" in operator.text


def test_creating_invites_the_first_administrator(operator: Any) -> None:
    answer = operator.send(
        "/organizations/new", name="Globex", id="globex", email="hank@globex.example", person="Hank"
    )

    assert answer.status_code == 200
    assert re.search(r"/organizations/globex/invite/gth_iv_", answer.text)
    operator.get("/organizations/globex")
    assert "Globex" in operator.text and "Active" in operator.text


def test_creating_without_administrator_leads_to_it(operator: Any) -> None:
    operator.send("/organizations/new", name="Globex Corporation")
    operator.follow()

    assert "globex-corporation" in operator.text


def test_errors_land_at_their_field(operator: Any) -> None:
    answer = operator.send("/organizations/new", name="", id="Root!", email="nobody", person="Hank")

    assert answer.status_code == 400
    for name in ("name", "id", "email"):
        assert f'href="#{name}"' in answer.text
    answer = operator.send("/organizations/new", name="Root", id="root")
    assert 'href="#id"' in answer.text


def test_suspending_stops_sign_ins_and_resuming_lets_them_in(
    make: Any, acme: Any, ada: Any, operator: Any
) -> None:
    operator.get("/organizations/acme")
    operator.send("/organizations/acme", act="suspend")
    operator.follow()
    assert "The organization is suspended" in operator.text
    assert ada.get("/clients").status_code == 303
    operator.get("/portal/acme")
    assert "This organization is suspended" in operator.text

    operator.get("/organizations/acme")
    operator.send("/organizations/acme", act="resume")
    operator.follow()

    assert "The organization works again" in operator.text
    assert ada.get("/clients").status_code == 200


def test_deleting_wants_the_id_and_restoring_brings_it_back(acme: Any, ada: Any, operator: Any) -> None:
    assert operator.send("/organizations/acme/delete", slug="acm").status_code == 400
    operator.send("/organizations/acme/delete", slug="acme")
    operator.follow()
    assert "The organization is deleted" in operator.text
    assert ada.get("").status_code == 404

    operator.send("/organizations/acme", act="restore")
    operator.follow()

    assert "The organization is restored" in operator.text
    # Sign-ins from before a restoration are dead, as tokens are.
    assert ada.get("").status_code == 303


def test_root_itself_has_no_end(operator: Any) -> None:
    operator.get("/organizations/root")
    assert "Suspend" not in operator.text and "Delete" not in operator.text

    assert operator.send("/organizations/root", act="suspend").status_code == 409
    assert operator.send("/organizations/root/delete", slug="root").status_code == 409


def test_act_that_is_none_changes_nothing(acme: Any, operator: Any) -> None:
    operator.get("/organizations/acme")

    assert operator.send("/organizations/acme", act="explode").status_code == 400


def test_others_have_no_such_page(make: Any, acme: Any, ada: Any, person: Any) -> None:
    make.root()
    for path in ("/organizations", "/organizations/new", "/organizations/acme", "/organizations/acme/delete"):
        assert ada.get(path).status_code == 404
        assert ada.get(f"/portal/root{path}").status_code == 303
    developer = person(make.root(), role="developer")
    assert developer.get("/organizations").status_code == 403
