"""Consent: who is asked, what a decision covers, and what a client gets without asking."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from app.operations.authorization.connected_apps import list_consents
from app.operations.clients.clients import update_client
from app.operations.clients.resources import define_resource, delete_resource
from app.operations.organizations.settings import update_settings
from app.operations.store import clock
from tests.oauth.conftest import (
    REDIRECT_URI,
    Flow,
    audited,
    change_rows,
    is_consent,
    location,
    on_another_worker,
    query_of,
)
from tests.oauth.failure_log import only
from tests.support.databases import Database


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Your Bank"},
        {"logo_uri": "https://orchard.example/logo.png"},
        {"redirect_uris": [REDIRECT_URI, "https://orchard.example/second"]},
        {"scopes": ["openid", "profile", "email"], "grant_types": ["authorization_code"]},
        {"trust": "verified"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_consent_is_valid_only_for_what_was_shown(asking: Flow, change: dict[str, object]) -> None:
    """IN-3: after a change, also on another worker, the page is shown again and can then be accepted."""
    page = asking.consent()
    with asking.app.app_context(), on_another_worker():
        update_client(asking.make.system(asking.organization), asking.client.client_id, change)
    again = asking.decide(page)
    assert again.status_code == 200 and 'id="consent-allow"' in again.text
    assert "code" in query_of(asking.decide(again))


def test_consent_is_valid_only_for_the_user_who_saw_it(asking: Flow) -> None:
    """IN-3: another user signed in meanwhile in the same browser."""
    page = asking.consent()
    asking.make.sign_in(asking.make.user(asking.organization), asking.http)
    again = asking.decide(page)
    assert again.status_code == 200 and 'id="consent-allow"' in again.text


def test_denial_is_reported_to_the_client(asking: Flow, database: Database) -> None:
    query = query_of(asking.decide(asking.consent(), "consent-deny"))
    assert (query["error"], query["state"], query["iss"]) == ("access_denied", "s", asking.issuer)
    assert database.count("authorization_codes") == database.count("consents") == 0
    assert audited(database, "consent.denied") == 1


@pytest.mark.parametrize("decision", [None, "", "maybe", "ALLOW"])
def test_form_without_a_decision_is_not_applied(
    asking: Flow, database: Database, decision: str | None
) -> None:
    answer = (
        asking.decide(asking.consent(), decision=decision)
        if decision
        else asking.decide(asking.consent(), decision=())
    )
    assert answer.status_code == 200 and 'id="consent-allow"' in answer.text
    assert database.count("authorization_codes") == 0


def test_decision_without_a_shown_page_is_not_applied(asking: Flow, database: Database) -> None:
    """A decision posted for a request whose page was never shown."""
    page = asking.consent(state="one")
    token = parse_qs(urlsplit(location(asking.authorize(state="two"))).query)["request"][0]
    answer = asking.decide(page, request=token)
    assert answer.status_code == 200 and database.count("authorization_codes") == 0


def test_consent_page_names_client_and_scopes(asking: Flow) -> None:
    """CO-1."""
    text = asking.consent(scope="openid email offline_access").text
    assert "Orchard" in text and asking.organization.name in text and asking.user.email in text
    assert "Not reviewed by" in text and "orchard.example" in text
    assert "See your email address" in text and "Keep access while you are away" in text


def test_granted_scopes_are_remembered_and_no_others(asking: Flow) -> None:
    """CO-2."""
    assert "code" in query_of(asking.decide(asking.consent(scope="openid")))
    assert "code" in query_of(asking.authorize(scope="openid"))
    assert is_consent(asking.authorize(scope="openid email"), asking)
    assert is_consent(asking.authorize(scope="openid", prompt="consent"), asking)
    assert "code" in query_of(asking.decide(asking.consent(scope="openid email")))
    assert "code" in query_of(asking.authorize(scope="openid email"))


def test_scope_that_was_deleted_and_created_again_is_another_one(asking: Flow) -> None:
    """CO-2: a developer cannot let users allow the scope of a harmless API that will be one of another API."""
    scopes = ["openid", "offline_access", "payroll.read"]
    admin = asking.make.actor(asking.organization)
    with asking.app.app_context():
        fields = {"name": "Weather", "identifier": "https://weather.example"}
        before = define_resource(admin, fields | {"scopes": [{"name": "payroll.read"}]})
    app = asking.other_client(scopes=scopes)
    token = app.tokens(scope=" ".join(scopes))["refresh_token"]
    on_its_way = query_of(app.authorize(scope="openid payroll.read"))["code"]
    with asking.app.app_context():
        delete_resource(admin, before.public_id, confirmed=True)
        fields = {"name": "Payroll", "identifier": "https://payroll.example"}
        define_resource(admin, fields | {"scopes": [{"name": "payroll.read"}]})
        update_client(admin, app.client.client_id, {"scopes": scopes})
        [shown] = list_consents(asking.make.actor(asking.organization, user=asking.user))
    assert shown.scopes == ("openid", "offline_access")
    assert is_consent(app.authorize(scope="openid payroll.read"), app)
    assert app.redeem(on_its_way).get_json()["scope"] == "openid"
    assert app.refresh(token, resource="https://payroll.example").get_json()["error"] == "invalid_target"
    assert app.refresh(token).get_json()["scope"] == "openid offline_access"
    allowed = app.decide(app.consent(scope=" ".join(scopes)))
    assert app.redeem(query_of(allowed)["code"]).get_json()["scope"] == " ".join(scopes)


@pytest.mark.parametrize("trust", ["unverified", "verified", "first_party"])
@pytest.mark.parametrize(
    "fields",
    [
        {"type": "spa", "redirect_uris": ["https://spa.example/cb"]},
        {"type": "native", "redirect_uris": ["http://127.0.0.1/cb"]},
        {"type": "native", "redirect_uris": ["com.example.app:/cb"]},
        {"type": "native", "redirect_uris": ["https://app.example/cb"]},
        {"type": "web", "redirect_uris": ["http://localhost:3000/cb"]},
    ],
    ids=lambda fields: f"{fields['type']} {fields['redirect_uris'][0]}",
)
def test_public_client_is_asked_every_time(flow: Flow, trust: str, fields) -> None:
    """CO-2, Doorkeeper's CVE-2023-34246: prompt=none does not succeed either, and the log says why."""
    other = flow.other_client(trust=trust, **fields)
    for _ in range(2):
        assert is_consent(other.authorize(), other)
        assert "code" in query_of(other.decide(other.consent()))
    assert query_of(other.authorize(prompt="none"))["error"] == "consent_required"
    assert "such as localhost" in only(other).explanation.fix


def test_consent_can_expire(asking: Flow) -> None:
    with asking.app.app_context():
        changes = {"oauth": {"consent": {"ttl_seconds": 86400}}}
        update_settings(asking.make.system(asking.organization), asking.organization.slug, changes)
    assert "code" in query_of(asking.decide(asking.consent()))
    assert "code" in query_of(asking.authorize())
    from app.models.grant import Consent

    with asking.app.app_context():
        ago = clock.now() - timedelta(seconds=1)
    change_rows(asking, Consent, expires_at=ago)
    assert is_consent(asking.authorize(), asking)


def test_only_optional_scopes_can_be_declined(asking: Flow) -> None:
    other = asking.other_client(optional_scopes=["email", "offline_access"], redirect_uris=[REDIRECT_URI])
    everything = "openid profile email offline_access"
    document = other.redeem(
        query_of(other.decide(other.consent(scope=everything), scope=["email"]))["code"]
    ).get_json()
    assert document["scope"] == "openid profile email" and "refresh_token" not in document
    page = other.consent(scope=everything, prompt="consent")
    answer = other.decide(page, scope=["address", "clients:write"])
    assert other.redeem(query_of(answer)["code"]).get_json()["scope"] == "openid profile"


def test_declining_every_scope_is_a_denial(asking: Flow, database: Database) -> None:
    other = asking.other_client(optional_scopes=["email", "profile"], redirect_uris=[REDIRECT_URI])
    query = query_of(other.decide(other.consent(scope="email profile"), scope=()))
    assert query["error"] == "access_denied"
    assert database.count("authorization_codes") == database.count("consents") == 0


def test_offline_access_needs_user_consent(asking: Flow) -> None:
    """CO-5."""
    document = asking.redeem(query_of(asking.decide(asking.consent(scope="openid")))["code"]).get_json()
    assert "refresh_token" not in document
    assert is_consent(asking.authorize(scope="openid offline_access"), asking)


def test_scope_without_a_description_is_listed_once(asking: Flow) -> None:
    scopes = ["openid", "profile", "orders:read"]
    page = asking.other_client(scopes=scopes).consent(scope=" ".join(scopes))
    label = page.text.split('id="scope-orders:read">')[1].split("</div>")[0]
    assert label.count("orders:read") == 1


def test_each_label_belongs_to_the_checkbox_of_its_own_scope(asking: Flow) -> None:
    scopes = ["orders:read", "orders.read", "orders/read", "orders-read"]
    client = asking.other_client(scopes=["openid", *scopes], optional_scopes=scopes)
    page = client.consent(scope=" ".join(["openid", *scopes]))
    boxes = dict(re.findall(r'<input type="checkbox" id="([^"]+)" name="scope" value="([^"]+)"', page.text))
    labels = re.findall(r'<label for="([^"]+)">(\S+)', page.text)
    assert {name: boxes[box] for box, name in labels if box in boxes} == {name: name for name in scopes}


def test_scopes_that_change_data_or_last_are_highlighted_under_their_api(asking: Flow) -> None:
    page = asking.other_client(scopes=["openid", "orders:write", "offline_access"]).consent(
        scope="openid orders:write offline_access"
    )
    rows = page.text.split("<li")[1:]
    marked = {
        name
        for row in rows
        if row.startswith(' class="sensitive"')
        for name in ("orders:write", "offline_access", "openid")
        if f'value="{name}"' in row
    }
    assert marked == {"orders:write", "offline_access"} and "Your account" in page.text
