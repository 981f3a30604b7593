"""Identity providers in the portal: adding, changing and deleting them, and the linked accounts of a user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask

from app.operations.organizations.roles import create_role
from app.operations.sign_in.identity_providers import update_identity_provider
from app.operations.store import audit
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.scim.conftest import new_directory
from tests.support.caches import clear_cached_providers
from tests.support.databases import Database
from tests.support.https_server import reaching
from tests.support.identity_provider import CLIENT_SECRET, FakeProvider, identity_provider
from tests.support.world_rows import linked

URL = "/identity-providers"


@pytest.fixture
def fake(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """A provider that the service may reach."""
    clear_cached_providers()
    with identity_provider() as running:
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], running.server))
        yield running


def added(ada: Any, fake: FakeProvider, **fields: Any) -> str:
    """Add a provider with the form and return the path of its page."""
    page = ada.submit(
        f"{URL}/new", **({**fake.fields, "scopes": "openid\nemail", "is_enabled": "1"} | fields)
    )
    found = re.search(rf"{URL}/idp_[0-9a-z]{{26}}", page.text)
    assert page.status_code == 200 and found, page.text
    return found[0]


@transaction
def record_failure(actor: Actor, provider_id: str) -> None:
    """Record what a provider answered to a sign-in."""
    after = {"problem": "the token endpoint answered 401"}
    audit.record(actor, "identity_provider.failed", "identity_provider", provider_id, after=after)


def test_provider_is_added_changed_and_deleted(
    app: Flask, make: Any, ada: Any, acme: Any, fake: FakeProvider, database: Database
) -> None:
    ada.get(URL)
    assert "No identity providers yet" in ada.text
    ada.get(f"{URL}/new")
    pattern = f"{acme.base_url}/organizations/acme/login/with/NAME/callback"
    assert pattern in ada.text and "openid\nemail\nprofile</textarea>" in ada.page.text
    address = added(ada, fake, create_users="1")
    assert "Register its redirect URI" in ada.text
    assert pattern.replace("NAME", "example") in ada.text and fake.issuer in ada.text
    assert "get one when they first sign in" in ada.text and "take over" not in ada.text
    assert f"{acme.base_url}/organizations/acme/scim/v2" in ada.text and "No tokens yet." in ada.text
    assert "Last failed sign-in" not in ada.text
    with app.app_context():
        record_failure(make.system(acme), address.rpartition("/")[2])
    page = ada.get(address)
    assert (
        "the token endpoint answered 401" in page.text
        and "/audit?action=identity_provider.failed" in page.text
    )
    for path in (URL, address, f"{address}/edit", "/audit"):
        assert CLIENT_SECRET not in ada.get(path).text
    ada.get(f"{address}/edit")
    assert 'name="slug"' not in ada.page.text
    # The secret is kept if its field is empty.
    before = database.query("SELECT sealed_secret FROM identity_providers")
    fields = {**fake.fields, "scopes": "email", "client_secret": "", "trust_emails": "1"}
    fields["version"] = ada.hidden("version")
    ada.submit(f"{address}/edit", **fields)
    assert "Saved." in ada.text and "Disabled" in ada.text and "take over accounts" in ada.text
    assert "Last failed sign-in" not in ada.text
    assert database.query("SELECT sealed_secret FROM identity_providers") == before
    stale = ada.send(f"{address}/edit", **(fields | {"name": "Late"}))
    assert stale.status_code == 412 and "Someone changed this identity provider" in ada.text
    fields |= {"version": ada.hidden("version"), "client_secret": "another"}
    ada.submit(f"{address}/edit", **fields)
    assert database.query("SELECT sealed_secret FROM identity_providers") != before
    ada.get(f"{address}/delete")
    assert "can no longer sign in with Example" in ada.text
    ada.submit(f"{address}/delete")
    assert "Identity provider deleted." in ada.text and database.count("identity_providers") == 0


def test_group_takes_its_members_from_providers(ada: Any, fake: FakeProvider, database: Database) -> None:
    address = added(ada, fake)
    provider_id = address.rpartition("/")[2]
    fields = {"name": "Engineers", "description": "", provider_id: "eng\n dev \n"}
    page = ada.submit("/groups/new", **fields)
    assert "Members from Example" in page.text and "<code>eng</code>, <code>dev</code>" in page.text
    group = re.search(r"/groups/grp_[0-9a-z]{26}", page.text)
    assert group, page.text
    edit = f"{group[0]}/edit"
    assert "eng\ndev</textarea>" in ada.get(edit).text
    version = ada.hidden("version")
    refused = ada.send(edit, **fields | {"version": version, provider_id: "eng\n" + "x" * 256})
    assert refused.status_code == 400 and f'href="#{provider_id}"' in refused.text
    assert "Line 2: Use at most 255 characters" in refused.text
    # What named a deleted provider is forgotten when the group is saved.
    ada.submit(f"{address}/delete")
    assert "Members from" not in ada.get(group[0]).text
    ada.get(edit)
    ada.submit(edit, version=version, name="Engineers", description="")
    assert database.query("SELECT provider_groups FROM user_groups") == [(None,)]


def test_errors_are_shown_at_their_fields_in_the_language_of_the_page(
    ada: Any, fake: FakeProvider, database: Database
) -> None:
    fields = {**fake.fields, "scopes": "openid\ntwo words", "slug": "Not valid", "is_enabled": "1"}
    page = ada.send(f"{URL}/new", **fields)
    assert page.status_code == 400
    assert 'href="#slug"' in page.text and 'href="#scopes"' in page.text and "Line 2" in ada.text
    assert "/login/with/Not valid/callback" in ada.text and CLIENT_SECRET not in page.text
    fake.metadata = {"issuer": "https://other.example"}
    ada.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    page = ada.send(f"{URL}/new", **(fields | {"scopes": "openid", "slug": "example"}))
    assert page.status_code == 400 and 'href="#issuer"' in page.text
    assert "Die Metadaten nennen einen anderen Issuer: https://other.example." in ada.text
    # The reason within the message is translated, too.
    page = ada.send(
        f"{URL}/new", **(fields | {"scopes": "openid", "slug": "example", "issuer": "https://localhost:1024"})
    )
    assert "ist nicht verwendbar" in page.text and "could not be reached" not in page.text
    assert database.count("identity_providers") == 0


@pytest.mark.parametrize(("role", "sees"), [("auditor", True), ("developer", True), ("member", False)])
def test_reader_sees_no_buttons(
    acme: Any, ada: Any, fake: FakeProvider, portal_user: Callable[..., Any], role: str, sees: bool
) -> None:
    address = added(ada, fake)
    reader = portal_user(acme, None if role == "member" else role)
    page = reader.get(address)
    assert page.status_code == (200 if sees else 403)
    if sees:
        assert "Redirect URI" in page.text and "Delete" not in page.text and "Edit" not in reader.text
        assert "SCIM" in page.text and "Create token" not in page.text
        assert "Add an identity provider" not in reader.get(URL).text
        assert reader.get(f"{URL}/new").status_code == 403


def test_forms_require_fresh_sign_in(ada: Any, fake: FakeProvider, database: Database) -> None:
    address = added(ada, fake)
    database.query("UPDATE sessions SET authenticated_at = '2026-01-01 00:00:00'")
    tokens = f"{address}/provisioning-tokens"
    for path in (f"{URL}/new", f"{address}/edit", f"{address}/delete", tokens):
        answer = ada.get(path)
        assert answer.status_code == 303 and "reauthenticate=1" in answer.headers["Location"]
    ada.get(address)
    assert "reauthenticate=1" in ada.send(tokens).headers["Location"]
    assert database.count("provisioning_tokens") == 0


def test_provisioning_token_is_shown_once_and_deleted(
    app: Flask, make: Any, acme: Any, ada: Any, database: Database
) -> None:
    with app.app_context():
        provider, _ = linked(make.actor(acme), "example", make.user(acme).public_id)
    address = f"{URL}/{provider}"
    tokens = f"{address}/provisioning-tokens"
    ada.get(address)
    assert "/portal/acme/docs/provisioning" in ada.page.text
    page = ada.submit(tokens)
    token = re.search(r"gth_pv_[\w-]{59}", page.text)
    assert token and "Anyone with the token can create" in ada.text and "never" in ada.text
    page = ada.get(address)
    assert token[0] not in page.text and f"••••{token[0][-12:-8]}" in page.text and "hidden now" in ada.text
    ada.submit(tokens)
    assert "Create token" not in ada.get(address).text
    refused = ada.send(tokens)
    assert refused.status_code == 409 and "has at most 2 provisioning tokens" in ada.text
    with app.app_context():
        update_identity_provider(make.actor(acme), provider, {"status": "disabled"})
    ada.get(address)
    assert "The provider is disabled, so its tokens are rejected." in ada.text
    assert "that it manages stay" in ada.get(f"{address}/delete").text
    ada.get(address)
    link = re.search(rf"{tokens}/pvt_[0-9a-z]{{26}}/delete", ada.page.text)
    assert link, ada.page.text
    ada.get(link[0])
    assert f"Delete the token that ends with {token[0][-12:-8]}?" in ada.text
    ada.submit(link[0])
    assert "Token deleted." in ada.text and database.count("provisioning_tokens") == 1
    assert ada.get(link[0]).status_code == 404


def test_user_and_group_name_the_provider_that_manages_them(
    app: Flask, make: Any, acme: Any, ada: Any, portal_user: Callable[..., Any]
) -> None:
    directory = new_directory(app, make, acme)
    pages = (
        f"/users/{directory.create('ben@orchard.example')['id']}",
        f"/groups/{directory.group('Pickers')['id']}",
    )
    with app.app_context():
        create_role(make.actor(acme), {"id": "support", "permissions": ["users:read"]})
    support = portal_user(acme, "support")
    link = f'{URL}/{directory.record.public_id}"'
    for path in pages:
        assert link in ada.get(path).text and "Managed by Okta" in ada.text
        assert link not in support.get(path).text and "Managed by Okta" in support.text
    assert "Managed by" not in ada.get(f"/users/{ada.user.public_id}").text
    ada.submit(f"{URL}/{directory.record.public_id}/delete")
    assert not [path for path in pages if "Managed by" in ada.get(path).text]


def test_id_in_the_search_leads_to_the_provider(ada: Any, fake: FakeProvider) -> None:
    address = added(ada, fake)
    found = ada.get(f"/search?q={address.rpartition('/')[2]}")
    assert found.headers["Location"].endswith(address)


def test_linked_account_of_user_is_unlinked(app: Flask, make: Any, acme: Any, ada: Any) -> None:
    user = make.user(acme)
    with app.app_context():
        provider, identity = linked(make.actor(acme), "example", user.public_id)
    found = f"/users?identity_provider={provider}"
    assert found in ada.get(f"/identity-providers/{provider}").text
    table = ada.get(found).text.partition("<table>")[2]
    assert user.email in table and ada.user.email not in table
    ada.get(f"/users/{user.public_id}")
    assert "Linked accounts Example example@idp.example" in ada.text
    address = f"/users/{user.public_id}/linked-identities/{identity}/unlink"
    ada.get(address)
    assert f"example@idp.example of Example no longer signs in {user.email}." in ada.text
    ada.submit(address)
    assert "Account unlinked." in ada.text and "Linked accounts" not in ada.text
    assert ada.get(address).status_code == 404
