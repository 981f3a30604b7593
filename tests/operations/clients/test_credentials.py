"""Client secrets (SE-1, SE-2): create, list, rotate and revoke them, and what is stored."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from flask import Flask

from app.operations.clients import clients, credential_revocation, credential_rows, credentials
from app.operations.clients.client_usage import get_client_credentials, preview_revocation
from app.operations.directory import lookups
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.store import clock
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from tests.factories import Factory, MadeClient, basic_header
from tests.support.cases import each
from tests.support.databases import Database


@pytest.fixture
def client(context: Flask, make: Factory) -> MadeClient:
    return make.client(make.organization())


@pytest.fixture
def admin(client: MadeClient, make: Factory) -> Actor:
    return make.actor(client.organization, user=make.user(client.organization))


def entries(actor: Actor, client: MadeClient) -> dict[str, credential_rows.CredentialRecord]:
    return {entry.public_id: entry for entry in credentials.list_credentials(actor, client.client_id).items}


def first_of(client: MadeClient) -> str:
    assert client.registered.credential is not None
    return client.registered.credential.public_id


def can_authenticate(client: MadeClient, secret: str, make: Factory) -> bool:
    from app.operations.clients.client_authentication import Presented, authenticate_client
    from app.rules.errors import InvalidClient

    try:
        authenticate_client(Presented("client_secret_basic", client.client_id, secret))
    except InvalidClient:
        return False
    return True


def audit_actions(database: Database) -> list[str]:
    return [bytes(row[0]).decode() for row in database.query("SELECT action FROM audit_events ORDER BY id")]


def test_secret_is_random_and_stored_as_a_digest(
    admin: Actor, client: MadeClient, make: Factory, database: Database
) -> None:
    """SE-0, SE-1, TK-2."""
    made = credentials.create_credential(admin, client.client_id, {"name": "deploy"})
    form = rf"gth_cs_{admin.organization_id}[A-Za-z0-9_-]{{43}}[0-9a-f]{{8}}"
    assert re.fullmatch(form, made.secret)
    assert made.credential.hint == made.secret[-12:-8]
    assert made.secret.encode() not in database.dump()
    assert can_authenticate(client, made.secret, make)
    assert can_authenticate(client, client.secret, make)


def test_list_identifies_secrets_without_showing_them(admin: Actor, client: MadeClient) -> None:
    """SE-2."""
    made = credentials.create_credential(admin, client.client_id)
    listed = entries(admin, client)
    assert set(listed) == {first_of(client), made.credential.public_id}
    entry = listed[made.credential.public_id]
    assert (entry.status, entry.verdict, entry.live_tokens) == ("active", "Not used yet.", 0)
    assert entry.created_by == admin.label
    assert made.secret not in repr(entry)
    names = [entry.name for entry in listed.values()]
    assert len(set(names)) == 2


def test_active_secret_is_shown_below_many_revoked_ones(
    admin: Actor, client: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The portal lists the newest secrets only, but never hides one that works."""
    monkeypatch.setattr(credentials, "MAX_LISTED", 2)
    for _ in range(3):
        made = credentials.create_credential(admin, client.client_id)
        credential_revocation.revoke_credentials(
            admin, client.client_id, credential_id=made.credential.public_id
        )
    shown = get_client_credentials(admin, client.client_id)
    assert shown.secrets is not None
    assert [secret.status for secret in shown.secrets] == ["revoked", "revoked", "active"]
    assert preview_revocation(admin, client.client_id, first_of(client)).is_last


def test_list_shows_use(admin: Actor, client: MadeClient, make: Factory, app: Flask) -> None:
    machine = make.machine(client.organization, "clients:read")
    for address in ("192.0.2.1", "192.0.2.2"):
        answer = app.test_client().post(
            "/oauth/token",
            data={"grant_type": "client_credentials"},
            headers=machine.basic,
            environ_overrides={"REMOTE_ADDR": address},
        )
        assert answer.status_code == 200
    [entry] = entries(admin, machine).values()
    assert entry.last_used_address == "192.0.2.2"
    assert {use.address for use in entry.addresses} == {"192.0.2.1", "192.0.2.2"}
    assert entry.live_tokens == 2
    assert entry.verdict.startswith("Used ")
    assert entry.verdict.endswith("from 2 IP addresses. Still needed.")


def test_addresses_of_a_busy_secret_do_not_hide_those_of_another(
    admin: Actor, client: MadeClient, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are what shows where an old secret is still used."""
    monkeypatch.setattr(credential_rows, "MAX_IP_ADDRESSES", 1)
    new = credentials.create_credential(admin, client.client_id)
    busy = basic_header(client.client_id, new.secret)
    for number, header in enumerate((client.basic, busy, busy)):
        app.test_client().post(
            "/oauth/introspect",
            data={"token": "x"},
            headers=header,
            environ_overrides={"REMOTE_ADDR": f"192.0.2.{number}"},
        )
    shown = {name: [use.address for use in entry.addresses] for name, entry in entries(admin, client).items()}
    assert shown == {first_of(client): ["192.0.2.0"], new.credential.public_id: ["192.0.2.2"]}


def test_number_of_active_secrets_is_limited(context: Flask, make: Factory, database: Database) -> None:
    organization = make.organization(settings={"oauth": {"clients": {"max_secrets": 2}}})
    client, admin = make.client(organization), make.actor(organization)
    second = credentials.create_credential(admin, client.client_id)
    count = database.count("client_credentials")
    with pytest.raises(Conflict) as refusal:
        credentials.create_credential(admin, client.client_id)
    assert refusal.value.code == "too_many_secrets"
    assert database.count("client_credentials") == count
    credential_revocation.revoke_credentials(
        admin, client.client_id, credential_id=second.credential.public_id
    )
    assert credentials.create_credential(admin, client.client_id).secret


def test_secret_expires(admin: Actor, client: MadeClient, make: Factory) -> None:
    ends = clock.now() + timedelta(days=3)
    made = credentials.create_credential(admin, client.client_id, {"expires_at": ends})
    assert made.credential.expires_at == ends
    assert made.credential.status == "expiring"


def test_organization_can_set_an_expiry_for_new_secrets(context: Flask, make: Factory) -> None:
    organization = make.organization(settings={"oauth": {"clients": {"secret_ttl_seconds": 86_400}}})
    client = make.client(organization)
    assert client.registered.credential is not None
    ends = client.registered.credential.expires_at
    assert ends is not None
    assert ends - clock.now() <= timedelta(days=1)


def test_rotation_overlaps_and_can_be_cancelled(admin: Actor, client: MadeClient, make: Factory) -> None:
    made = credentials.rotate_credential(admin, client.client_id)
    assert [entry.public_id for entry in made.retired] == [first_of(client)]
    old = entries(admin, client)[first_of(client)]
    assert old.status == "expiring"
    assert old.expires_at is not None
    assert timedelta(hours=23) < old.expires_at - clock.now() <= timedelta(days=1)
    assert can_authenticate(client, client.secret, make)
    assert can_authenticate(client, made.secret, make)
    credentials.restore_retiring_secrets(admin, client.client_id)
    assert {entry.status for entry in entries(admin, client).values()} == {"active"}
    assert {entry.expires_at for entry in entries(admin, client).values()} == {None}
    with pytest.raises(Conflict):
        credentials.restore_retiring_secrets(admin, client.client_id)


def test_cancelling_a_second_rotation_restores_the_original_expiry(admin: Actor, client: MadeClient) -> None:
    ends = clock.now() + timedelta(days=300)
    kept = credentials.create_credential(admin, client.client_id, {"expires_at": ends}).credential.public_id
    credentials.create_credential(admin, client.client_id, {"retire_others_in_seconds": 7200})
    credentials.create_credential(admin, client.client_id, {"retire_others_in_seconds": 3600})
    credentials.restore_retiring_secrets(admin, client.client_id)
    assert entries(admin, client)[kept].expires_at == ends
    assert entries(admin, client)[first_of(client)].expires_at is None


def test_retiring_immediately_revokes_the_other_secrets(
    admin: Actor, client: MadeClient, make: Factory
) -> None:
    made = credentials.create_credential(admin, client.client_id, {"retire_others_in_seconds": 0})
    assert [entry.status for entry in made.retired] == ["expired"]
    assert not can_authenticate(client, client.secret, make)
    assert can_authenticate(client, made.secret, make)


def test_disabled_client_gets_no_secret(admin: Actor, client: MadeClient) -> None:
    clients.update_client(admin, client.client_id, {"status": "disabled"})
    with pytest.raises(Conflict) as refusal:
        credentials.create_credential(admin, client.client_id)
    assert refusal.value.code == "client_disabled"


def test_revoked_secret_is_rejected_and_others_work(
    admin: Actor, client: MadeClient, make: Factory, database: Database
) -> None:
    made = credentials.create_credential(admin, client.client_id)
    counts = credential_revocation.revoke_credentials(admin, client.client_id, credential_id=first_of(client))
    assert (counts.credentials, counts.tokens) == (1, 0)
    assert not can_authenticate(client, client.secret, make)
    assert can_authenticate(client, made.secret, make)
    again = credential_revocation.revoke_credentials(admin, client.client_id, credential_id=first_of(client))
    assert again.credentials == 0
    assert audit_actions(database).count("credential.revoked") == 1
    assert credential_revocation.revoke_credentials(admin, client.client_id).credentials == 1
    assert credential_revocation.revoke_credentials(admin, client.client_id).credentials == 0
    assert {entry.status for entry in entries(admin, client).values()} == {"revoked"}


@pytest.mark.parametrize("takes_tokens", [False, True])
def test_tokens_of_a_revoked_secret_stay_valid_unless_revoked(
    client: MadeClient, make: Factory, app: Flask, takes_tokens: bool
) -> None:
    machine = make.machine(client.organization, "clients:read")
    admin = make.actor(client.organization)
    answer = app.test_client().post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic
    )
    token = answer.get_json()["access_token"]
    counts = credential_revocation.revoke_credentials(admin, machine.client_id, revoke_tokens=takes_tokens)
    assert (counts.credentials, counts.tokens) == (1, 1 if takes_tokens else 0)
    reply = app.test_client().get("/clients", headers={"Authorization": f"Bearer {token}"})
    assert reply.status_code == (401 if takes_tokens else 200)
    [entry] = entries(admin, machine).values()
    assert entry.live_tokens == (0 if takes_tokens else 1)
    later = credential_revocation.revoke_credentials(
        admin, machine.client_id, credential_id=entry.public_id, revoke_tokens=True
    )
    assert (later.credentials, later.tokens) == (0, 0 if takes_tokens else 1)


@each("credential_id", ["", "sec_x", "cli_x", "sec_00000000000000000000000000", "x" * 300])
def test_unknown_secret_is_not_found(admin: Actor, client: MadeClient, credential_id: str) -> None:
    for act in (
        lambda: credentials.get_credential(admin, client.client_id, credential_id),
        lambda: credentials.reveal_credential(admin, client.client_id, credential_id),
        lambda: credential_revocation.revoke_credentials(
            admin, client.client_id, credential_id=credential_id
        ),
    ):
        with pytest.raises(NotFound):
            act()


def test_secret_of_another_client_is_not_found(admin: Actor, client: MadeClient, make: Factory) -> None:
    other = make.client(client.organization)
    for act in (
        lambda: credentials.get_credential(admin, client.client_id, first_of(other)),
        lambda: credentials.reveal_credential(admin, client.client_id, first_of(other)),
        lambda: credential_revocation.revoke_credentials(
            admin, client.client_id, credential_id=first_of(other)
        ),
    ):
        with pytest.raises(NotFound):
            act()


def test_client_cache_reflects_each_change(admin: Actor, client: MadeClient) -> None:
    versions = []
    for act in (
        lambda: credentials.create_credential(admin, client.client_id),
        lambda: credentials.rotate_credential(admin, client.client_id),
        lambda: credentials.restore_retiring_secrets(admin, client.client_id),
        lambda: credential_revocation.revoke_credentials(admin, client.client_id),
    ):
        act()
        view = lookups.find_client(client.client_id, fresh=True)
        assert view is not None
        versions.append(view.version)
    assert versions == [2, 3, 4, 5]


def test_user_needs_a_recent_sign_in_to_create_a_secret(
    context: Flask, client: MadeClient, make: Factory, database: Database
) -> None:
    """PO-4: a new secret can replace every secret that works today."""
    user = make.user(client.organization)
    stale = make.actor(client.organization, user=user, authenticated_ago_seconds=5 * 3600)
    with pytest.raises(FreshSignInRequired):
        credentials.create_credential(stale, client.client_id, {"retire_others_in_seconds": 0})
    assert database.count("client_credentials") == 1
    fresh = make.actor(client.organization, user=user)
    assert credentials.create_credential(fresh, client.client_id).secret
