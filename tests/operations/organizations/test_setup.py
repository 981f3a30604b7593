"""Setup: it succeeds once, creates a working installation, and does not exist afterwards (BS-1)."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from app.models.audit import InstanceFact
from app.operations.clients.client_records import list_clients
from app.operations.directory.lookups import (
    get_organization_by_slug,
    get_root_organization,
    get_user_permissions,
)
from app.operations.organizations import setup
from app.operations.organizations.setup import complete_setup, is_set_up, is_setup_token, issue_setup_token
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules import identifiers
from app.rules.directory.permissions import PERMISSIONS, ROOT_ONLY
from app.rules.errors import InvalidInput, NotFound
from tests.factories import PASSWORD, Factory
from tests.support.cases import each
from tests.support.databases import Database

GOOD: dict[str, Any] = {
    "email": "root@gatehouse.example",
    "name": "Rosa",
    "password": PASSWORD,
    "organization_name": "Acme",
}


def test_setup_creates_root_administrator_organization_and_client(
    context: Flask, make: Factory, database: Database
) -> None:
    result = complete_setup(issue_setup_token(), **GOOD)
    root, acme = get_root_organization(), get_organization_by_slug("acme")
    assert (root.slug, root.is_root, root.issuer) == ("root", True, root.base_url)
    assert (acme.name, acme.is_root, acme.id) == (
        "Acme",
        False,
        get_organization_by_slug(result.organization_id).id,
    )
    assert get_user_permissions(root, root.id, result.user_id) >= frozenset(PERMISSIONS) | frozenset(
        ROOT_ONLY
    )
    assert get_user_permissions(acme, root.id, result.user_id) >= frozenset(PERMISSIONS)
    assert isinstance(sign_in(root.id, GOOD["email"], PASSWORD), SignedIn)
    in_acme = sign_in(acme.id, GOOD["email"], PASSWORD)
    assert isinstance(in_acme, SignedIn), "the administrator can use the apps of the first organization"
    assert get_user_permissions(acme, acme.id, in_acme.user_id) == frozenset(PERMISSIONS)
    assert not get_user_permissions(root, acme.id, in_acme.user_id), "and is no instance administrator there"
    (client,) = list_clients(make.system(root)).items
    assert client.client_id == result.client_id
    assert (client.type, client.trust, client.grant_types) == (
        "machine",
        "first_party",
        ("client_credentials",),
    )
    assert set(client.scopes) == set(PERMISSIONS) | set(ROOT_ONLY)
    actions = {row[0] for row in database.query("SELECT action FROM audit_events")}
    assert {bytes(action) if isinstance(action, bytes) else action.encode() for action in actions} >= {
        b"instance.set_up", b"organization.created", b"client.registered", b"administrator.added"
    }  # fmt: skip


def test_second_setup_is_not_found(context: Flask, make: Factory) -> None:
    token = issue_setup_token()
    complete_setup(token, **GOOD)
    for again in (token, None, identifiers.new_token("su", "00000000")):
        with pytest.raises(NotFound):
            complete_setup(again, **GOOD | {"email": "other@gatehouse.example"})
    with pytest.raises(NotFound):
        issue_setup_token()
    assert is_set_up()


def test_setup_token_is_valid_for_an_hour(context: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    token = issue_setup_token()
    begun = clock.now()
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(minutes=59))
    assert is_setup_token(token)
    monkeypatch.setattr(clock, "now", lambda: begun + timedelta(minutes=61))
    assert not is_setup_token(token)
    with pytest.raises(NotFound):
        complete_setup(token, **GOOD)
    assert not is_set_up()


def test_newer_setup_token_replaces_the_previous_one(context: Flask) -> None:
    first, second = issue_setup_token(), issue_setup_token()
    assert not is_setup_token(first)
    assert is_setup_token(second)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "gth_su_",
        "x" * 500,
        "gth_su_\x00",
        pytest.param(identifiers.new_token("su", "00000000"), id="another"),
        pytest.param(identifiers.new_token("iv", "00000000"), id="another-kind"),
    ],
)
def test_other_tokens_are_rejected(token: str, context: Flask) -> None:
    issue_setup_token()
    assert not is_setup_token(token)
    with pytest.raises(NotFound):
        complete_setup(token, **GOOD)
    assert not is_set_up()


def test_setup_token_is_not_stored_in_clear_text(context: Flask, database: Database) -> None:
    token = issue_setup_token()
    assert token.encode() not in database.dump()
    assert token[-50:-8].encode() not in database.dump()


def test_all_invalid_fields_are_named_and_nothing_is_created(context: Flask, database: Database) -> None:
    token = issue_setup_token()
    with pytest.raises(InvalidInput) as refusal:
        complete_setup(
            token, email="nobody", name="", password="short", organization_name="Acme", organization_id="A!"
        )
    assert {error.field for error in refusal.value.errors} == {"email", "name", "password", "organization_id"}
    assert database.count("organizations") == database.count("users") == 0
    assert is_setup_token(token), "a typing error costs no token"


@each("slug", ["root", "admin", "x", "-acme", "ACME", "a" * 41])
def test_organization_id_must_be_free(slug: str, context: Flask) -> None:
    with pytest.raises(InvalidInput) as refusal:
        complete_setup(None, **GOOD, organization_id=slug)
    assert refusal.value.field == "organization_id"
    assert not is_set_up()


@pytest.mark.mariadb
@pytest.mark.race
def test_concurrent_setups_succeed_once(
    app: Flask, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The hash takes 18 ms of a core, and a hundred of them would only make the threads come one by one.
    monkeypatch.setattr(setup, "hash_new_password", lambda *args, **kwargs: "$argon2id$not-a-hash")
    with app.app_context():
        token = issue_setup_token()
    results: Counter[str] = Counter()
    ready = threading.Barrier(100)

    def come(number: int) -> None:
        with app.app_context():
            ready.wait()
            try:
                complete_setup(token, **GOOD | {"email": f"root{number}@gatehouse.example"})
                results["made"] += 1
            except NotFound:
                results["nothing here"] += 1

    threads = [threading.Thread(target=come, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"made": 1, "nothing here": 99}
    assert database.count("users") == 2, "one in root, one in the first organization"
    assert database.count("organizations") == 2
    assert database.count("clients") == 1


@transaction
def _facts() -> list[str]:
    from app.extensions import db

    return [fact.name for fact in db.session.query(InstanceFact)]


def test_setup_token_is_deleted_after_setup(context: Flask) -> None:
    complete_setup(issue_setup_token(), **GOOD)
    assert _facts() == ["set-up"]
