"""Groups, roles, claims and attributes in Chromium, wide and narrow, light and dark."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.organizations.settings import update_settings
from app.operations.users.app_roles import assign_app_role
from app.operations.users.groups import add_member, create_group
from app.operations.users.user_changes import update_user
from tests.factories import Factory
from tests.support.browser import NARROW, check, sign_in, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]
ATTRIBUTES = [
    {
        "key": "department",
        "name": "Department",
        "type": "string",
        "choices": ["Fruit", "Tools"],
        "required": True,
    },
    {"key": "nickname", "name": "Name on the badge", "type": "string", "editable_by": "user"},
    {"key": "grade", "name": "Grade", "type": "integer"},
    {"key": "remote", "name": "Works from home", "type": "boolean", "editable_by": "user"},
    {"key": "hired", "name": "Hired", "type": "date"},
    {"key": "skills", "name": "Skills", "type": "list", "choices": ["pick", "prune"], "editable_by": "user"},
    {"key": "languages", "name": "Languages", "type": "list", "editable_by": "user"},
]
MAPPINGS: list[dict[str, Any]] = [
    {"claim": "https://acme.example/claims/department", "source": "attributes.department"},
    {"claim": "groups", "source": "groups", "targets": ["access_token"]},
]


def test_pages_of_groups_roles_claims_and_attributes(chromium: Any, live_server: Any) -> None:
    make = Factory(live_server.app)
    acme = make.organization(name="Acme")
    user, actor = make.user(acme, role="admin"), make.actor(acme)
    client = make.client(
        acme, app_roles=[{"key": "editor", "name": "Editor"}, {"key": "invoices:approve"}], claim_mappings=[]
    )
    with live_server.app.app_context():
        update_settings(actor, acme.slug, {"user_profile": {"attributes": ATTRIBUTES}})
        update_user(
            actor, user.public_id, {"attributes": {"department": "Fruit", "grade": 3, "remote": True}}
        )
        words = {"name": "Pickers", "description": "Those who pick apples, pears and quinces in October."}
        group = create_group(actor, acme.slug, words).public_id
        add_member(actor, acme.slug, group, {"user_id": user.public_id})
        assign_app_role(actor, client.client_id, {"role": "editor", "group_id": group})
        assign_app_role(actor, client.client_id, {"role": "invoices:approve", "user_id": user.public_id})
    portal = f"{live_server.url}/portal/{acme.slug}"
    with watched(chromium, **NARROW) as browser:
        page = browser.new_page()
        page.goto(f"{portal}/groups")
        sign_in(page, user.email)
        page.wait_for_selector("text=Pickers")
        check(page)
        for path in (
            "/groups/new",
            f"/groups/{group}",
            f"/groups/{group}/delete",
            "/users",
            f"/users/{user.public_id}",
            f"/users/{user.public_id}/attributes",
            "/settings/attributes",
            "/settings/attributes/new",
            "/settings/attributes/department",
            f"/clients/{client.client_id}/roles",
        ):
            page.goto(f"{portal}{path}")
            check(page)
        page.goto(f"{portal}/clients/{client.client_id}/claims")
        for number, mapping in enumerate(MAPPINGS):
            page.fill(f"#claim_mappings-{number}-claim", mapping["claim"])
            page.select_option(f"#claim_mappings-{number}-source", mapping["source"])
        page.fill("#claim_mappings-1-claim", "sub")
        page.click("button:has-text('Save')")
        page.wait_for_selector("text=reserved for the protocol")
        check(page)
        page.fill("#claim_mappings-1-claim", "groups")
        page.click("button:has-text('Save')")
        page.wait_for_selector("text=Saved.")
        check(page)
        page.goto(f"{live_server.url}/organizations/{acme.slug}/account/profile")
        page.fill("[name='attributes.nickname']", "Ace")
        page.check("[name='attributes.skills'][value='prune']")
        check(page)
        page.click("#profile-save")
        page.wait_for_selector("text=Saved.")
