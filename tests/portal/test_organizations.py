"""Managing organizations as an administrator of root."""

from __future__ import annotations

import re
from typing import Any

import pytest


@pytest.fixture
def operator(make: Any, portal_user: Any) -> Any:
    """Return an administrator of root in the portal."""
    return portal_user(make.root())


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
    assert "No organizations found" in operator.text


def test_creation_invites_first_administrator(operator: Any) -> None:
    answer = operator.submit(
        "/organizations/new", name="Globex", id="globex", email="hank@globex.example", person="Hank"
    )

    assert re.search(r"/organizations/globex/invite/gth_iv_", answer.text)
    operator.get("/organizations/globex")
    assert "Globex" in operator.text and "Active" in operator.text


def test_creation_without_administrator_opens_organization(operator: Any) -> None:
    operator.send("/organizations/new", name="Globex Corporation")
    operator.follow()

    assert "globex-corporation" in operator.text and "also named" not in operator.text
    assert "This organization has no administrator yet. Add an administrator" in operator.text
    assert operator.get("/portal/globex-corporation/administrators/new").status_code == 200


def test_creation_names_the_id_if_another_organization_has_the_name(acme: Any, operator: Any) -> None:
    operator.submit("/organizations/new", name="Acme", email="hank@globex.example")

    assert "Another organization is also named Acme. The ID of this one is acme-2 ." in operator.text
    assert "has no administrator" not in operator.text


def test_invalid_values_show_errors_at_their_fields(operator: Any) -> None:
    assert 'href="#name"' in operator.send("/organizations/new", name="", id="globex").text
    answer = operator.send("/organizations/new", name="Globex", id="Root!", email="nobody", person="Hank")

    assert answer.status_code == 400
    for name in ("id", "email"):
        assert f'href="#{name}"' in answer.text
    answer = operator.send("/organizations/new", name="Root", id="root")
    assert 'href="#id"' in answer.text


def test_suspended_organization_refuses_sign_ins_until_resumed(
    make: Any, acme: Any, ada: Any, operator: Any
) -> None:
    operator.get("/organizations/acme/suspend")
    assert "1 user can't sign in, and 1 active session can't be used" in operator.text
    assert ada.get("/clients").status_code == 200
    operator.submit("/organizations/acme/suspend")
    assert "Organization suspended" in operator.text
    assert ada.get("/clients").status_code == 303
    operator.get("/portal/acme")
    assert "This organization is suspended" in operator.text
    assert "Nothing needs" not in operator.text and "All clear" not in operator.text
    assert '<a href="/portal/root/organizations/acme" id="resume">' in operator.page.text

    operator.get("/organizations/acme")
    operator.send("/organizations/acme", resume="1")
    operator.follow()

    assert "Organization resumed" in operator.text
    assert ada.get("/clients").status_code == 200


def test_failure_in_a_suspended_organization_names_the_suspension(
    make: Any, acme: Any, operator: Any
) -> None:
    client = make.machine(acme)
    operator.submit("/organizations/acme/suspend")
    app = operator.http.application
    rejected = app.test_client().post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=client.basic
    )
    assert rejected.status_code == 401
    with app.app_context():
        app.extensions["failed_requests"].write_waiting()

    operator.get("/portal/acme/logs")
    assert "The organization is suspended" in operator.text and "Fix available" not in operator.text
    operator.get(f"/portal/acme/logs?request_id={rejected.headers['X-Request-Id']}")
    operator.follow()

    assert "How to fix it 1 An instance administrator can resume it." in operator.text
    assert re.search("What changed before it began .* suspended the organization", operator.text)
    assert "playground?client=" not in operator.page.text


def test_deletion_requires_id_and_can_be_restored(acme: Any, ada: Any, operator: Any) -> None:
    assert operator.send("/organizations/acme/delete", typed="acm").status_code == 400
    operator.send("/organizations/acme/delete", typed="acme")
    operator.follow()
    assert "Organization deleted" in operator.text
    assert re.search(r"Data will be purged \d+ \w+ \d{4}", operator.text)
    assert ada.get("").status_code == 404

    operator.send("/organizations/acme", restore_suspended="1")
    assert "Suspended" in operator.get("/organizations/acme").text and ada.get("").status_code == 303
    operator.send("/organizations/acme/delete", typed="acme")
    operator.send("/organizations/acme", restore="1")
    operator.follow()

    assert "Organization restored" in operator.text
    # Sessions and tokens from before a restoration stay invalid.
    assert ada.get("").status_code == 303


def test_root_cannot_be_suspended_or_deleted(operator: Any) -> None:
    operator.get("/organizations/root")
    assert "Suspend" not in operator.text and "Delete" not in operator.text

    assert operator.send("/organizations/root/suspend").status_code == 409
    assert operator.send("/organizations/root/delete", typed="root").status_code == 409


def test_unknown_action_is_rejected(acme: Any, operator: Any) -> None:
    operator.get("/organizations/acme")

    assert operator.send("/organizations/acme", explode="1").status_code == 400


def test_pages_exist_only_for_root_administrators(make: Any, acme: Any, ada: Any, portal_user: Any) -> None:
    make.root()
    for path in ("/organizations", "/organizations/new", "/organizations/acme", "/organizations/acme/delete"):
        assert ada.get(path).status_code == 404
        assert ada.get(f"/portal/root{path}").status_code == 303
    developer = portal_user(make.root(), role="developer")
    assert developer.get("/organizations").status_code == 403
