"""The audit log: its list, filters, events and exports."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from flask import Flask
from msgspec.structs import replace
from sqlalchemy import insert, update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.user import User
from app.operations.audit import audit_events
from app.operations.clients import resources
from app.operations.clients.clients import delete_client, update_client
from app.operations.clients.credentials import create_credential
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.identity_providers import store_identity_provider
from app.operations.sign_in.provisioning_tokens import create_provisioning_token
from app.operations.users.groups import create_group, delete_group
from app.rules.identifiers import first_id_at
from tests.factories import bearer_header
from tests.portal.conftest import PortalUser
from tests.scim.conftest import FIELDS
from tests.support.cases import each


@pytest.fixture
def orchard(make: Any, acme: Any, ada: PortalUser) -> Any:
    """A client that was renamed, by an actor whose name a spreadsheet would compute."""
    client = make.client(acme)
    with make.app.app_context():
        update_client(make.actor(acme, user=ada.user), client.client_id, {"name": "=1+1 Meadow"})
    return client


def test_list_links_to_event_with_changed_fields(ada: PortalUser, orchard: Any) -> None:
    page = ada.get("/audit?action=client.updated")
    assert "updated a client" in ada.text and orchard.client_id in ada.text and ada.user.email in ada.text
    [address] = {part.split('"')[0] for part in page.text.split('href="') if "/audit/evt_" in part[:60]}
    ada.get(address)
    assert "Orchard" in ada.text and "=1+1 Meadow" in ada.text
    assert "192.0.2.7" in ada.text
    # The first question about a stolen session: what else was done from there?
    ada.get(ada.text.partition("IP address</dt><dd>")[2].partition('href="')[2].partition('"')[0])
    assert "updated a client" in ada.text.lower()


def test_changed_settings_are_named_as_on_their_page(ada: PortalUser, make: Any, acme: Any) -> None:
    with make.app.app_context():
        change = {"authentication": {"mfa": {"policy": "required_for_admins"}}}
        update_settings(make.actor(acme, user=ada.user), acme.slug, change)
    page = ada.get("/audit?action=settings")
    assert "Who needs two-step verification" in page.text
    assert '<details class="card" id="more">' in page.text
    [address] = {part.split('"')[0] for part in page.text.split('href="') if "/audit/evt_" in part[:60]}
    assert (
        "Who needs two-step verification<br><code>authentication.mfa.policy</code>" in ada.get(address).text
    )


def test_filters_without_result_show_message_and_invalid_days_are_ignored(
    ada: PortalUser, orchard: Any
) -> None:
    ada.get("/audit?actor=usr_nobody")
    assert "No events found" in ada.text
    ada.get("/audit?since=2026-99-99&until=x")
    assert "updated a client" in ada.text
    ada.get("/audit?until=2020-01-01")
    assert "No events found" in ada.text


@each("sent", ["\u200b{} ", "{}\n", " \u202a{}\u202c", "{}" + " " * 60 + "x"])
def test_filters_ignore_invisible_characters_of_copied_text(ada: PortalUser, orchard: Any, sent: str) -> None:
    asked = quote(sent.format(orchard.client_id))
    for path in (f"/audit?target={asked}", f"/audit/export/csv?target={asked}"):
        assert ada.get(path).status_code == 200
        assert "client.updated" in ada.text or "updated a client" in ada.text
    assert ada.get(f"/logs?request_id={asked}").status_code == 200


def test_csv_contains_every_event_and_escapes_formulas(
    ada: PortalUser, orchard: Any, make: Any, acme: Any
) -> None:
    with make.app.app_context():
        hostile = make.user(acme, email="ada+tag@example.com")
        update_client(make.actor(acme, user=hostile), orchard.client_id, {"name": "Plain"})
    answer = ada.get("/audit/export/csv?action=client")
    assert answer.mimetype == "text/csv" and "attachment" in answer.headers["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert sorted(row["action"] for row in rows) == ["client.registered", "client.updated", "client.updated"]
    cells = [cell for row in rows for cell in row.values()]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]


def test_label_that_starts_like_a_formula_is_escaped(ada: PortalUser, make: Any, acme: Any) -> None:
    with make.app.app_context():
        client = make.client(acme)
        actor = replace(make.actor(acme), label="=HYPERLINK(1)")
        update_client(actor, client.client_id, {"name": "Meadow"})
    answer = ada.get("/audit/export/csv?action=client.updated")
    [row] = csv.DictReader(io.StringIO(answer.text))
    assert row["actor_label"] == "'=HYPERLINK(1)"


def test_days_are_those_of_the_reader(ada: PortalUser, acme: Any, make: Any) -> None:
    """As the times of the page are: 20:00 UTC is on the next day in Kolkata."""
    at = datetime.now(UTC).replace(hour=20) - timedelta(days=3)
    row = {"organization_id": acme.id, "id": first_id_at(at), "at": at, "action": "test.written"}
    row |= {"actor_kind": "system", "actor_label": "", "actor_organization": acme.id}
    with make.app.app_context():
        db.session.execute(insert(AuditEvent), row)
        db.session.execute(update(User).values(profile={"zoneinfo": "Asia/Kolkata"}))
        db.session.commit()
    assert "From (Asia/Kolkata)" in ada.get("/audit").text
    for day, is_shown in ((at.date(), False), (at.date() + timedelta(days=1), True)):
        query = f"?action=test.written&since={day}&until={day}"
        assert ("No events found" not in ada.get(f"/audit{query}").text) == is_shown, day
        assert ("test.written" in ada.get(f"/audit/export/csv{query}").text) == is_shown
    assert ada.get("/audit?since=2000-01-01").status_code == 200


def test_users_are_found_by_email(ada: PortalUser, orchard: Any) -> None:
    """As the columns show them."""
    assert "No events found" not in ada.get(f"/audit?actor={ada.user.email.upper()}&action=client").text
    assert "No events found" in ada.get("/audit?actor=nobody@acme.example&action=client").text


def test_json_export_is_that_of_the_api(
    app: Flask, ada: PortalUser, orchard: Any, make: Any, acme: Any
) -> None:
    """A restore after a disaster accepts it as well."""
    query = "action=client.updated"
    mine = ada.get(f"/audit/export/ndjson?{query}")
    line = mine.text
    reader = bearer_header(make.bearer(acme, "audit:read"))
    theirs = app.test_client().get(f"/audit-events/export?{query}", headers=reader)
    assert mine.mimetype == theirs.mimetype == "application/x-ndjson"
    assert json.loads(line) == json.loads(theirs.text)
    assert ada.get("/audit/export/ndjson?action=never").text == ""
    assert ada.get("/audit/export/xml").status_code == 404


def test_developer_has_no_access_to_audit_log(acme: Any, portal_user: Any) -> None:
    grace = portal_user(acme, "developer")
    assert grace.get("/audit").status_code == 403
    assert grace.get("/audit/export/csv").status_code == 403
    grace.get("")
    assert "Audit log" not in grace.text


def test_events_name_their_targets_including_deleted_ones(
    ada: PortalUser, orchard: Any, make: Any, acme: Any
) -> None:
    with make.app.app_context():
        actor = make.actor(acme, user=ada.user)
        secret = create_credential(actor, orchard.client_id, {"name": "2026-11"})
        resources.delete_resource(
            actor, resources.define_resource(actor, {"identifier": "urn:api", "name": "Hay"}).public_id
        )
        delete_client(actor, orchard.client_id)
        delete_group(actor, acme.slug, create_group(actor, acme.slug, {"name": "Crew"}).public_id)
        provider = store_identity_provider(actor, dict(FIELDS))
        token = create_provisioning_token(actor, provider.public_id).record
    ada.get("/audit?action=group.created")
    assert "Crew Deleted grp_" in ada.text
    ada.get("/audit?action=identity_provider.created")
    assert f"Okta {provider.public_id}" in ada.text
    ada.get("/audit?action=provisioning_token.created")
    assert f"Okta {token.public_id}" in ada.text
    ada.get("/audit?action=credential.created")
    assert f"2026-11 · =1+1 Meadow {secret.credential.public_id}" in ada.text
    ada.get("/audit?action=client.registered")
    assert f"=1+1 Meadow Deleted {orchard.client_id}" in ada.text
    ada.get("/audit?action=resource.defined")
    assert "Hay Deleted res_" in ada.text
    ada.get("/audit?action=administrator")
    assert ada.user.email in ada.text
    page = ada.get("/audit?action=client.deleted")
    [address] = {part.split('"')[0] for part in page.text.split('href="') if "/audit/evt_" in part[:60]}
    ada.get(address)
    assert "client =1+1 Meadow Deleted cli_" in ada.text


def test_names_of_another_organization_are_not_revealed(ada: PortalUser, make: Any, acme: Any) -> None:
    globex = make.organization("globex")
    foreign = make.client(globex)
    with make.app.app_context():
        named = audit_events.find_names(make.actor(acme), [foreign.client_id, "cli_none", "usr_none"])
    assert named == {}
