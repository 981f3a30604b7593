"""Restoring a backup revives nothing that had ended (BK-1, BK-2): a real backup, every ending, and the command."""

from __future__ import annotations

import errno
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.config import UnsafeConfiguration
from app.extensions import db
from app.models.organization import Organization
from app.operations.clients.clients import update_client
from app.operations.clients.credentials import (
    list_credentials,
    restore_retiring_secrets,
    rotate_credential,
)
from app.operations.clients.initial_access_tokens import (
    create_registration_token,
    list_registration_tokens,
)
from app.operations.directory.lookups import (
    OrganizationSnapshot,
    get_organization_by_slug,
)
from app.operations.maintenance.exported_events import (
    RELEVANT_ACTIONS,
    EndedAgain,
    end_again,
    read_export,
)
from app.operations.organizations.organizations import delete_organization, get_organization
from app.operations.sign_in.passkeys import SIGN_IN, consume_challenge, issue_challenge, validate_challenge
from app.operations.sign_in.provisioning_tokens import (
    MAX_TOKENS_PER_PROVIDER,
    create_provisioning_token,
    list_provisioning_tokens,
)
from app.operations.sign_in.second_factors import (
    store_authenticator_app,
    use_authenticator_code,
)
from app.operations.store import clock
from app.operations.store.checkpoints import require_current_database
from app.operations.store.outages import beat
from app.operations.users.groups import (
    add_member,
    list_groups,
    list_members,
    remove_member,
)
from app.operations.users.user_changes import update_user
from app.rules.audit.events import EVENT_TYPES, action_for_event_type
from app.rules.sign_in.second_factors import STEP_SECONDS, new_secret, totp_code
from tests.cli.test_commands import run
from tests.factories import Factory, MadeClient, bearer_header
from tests.oauth.backup_world import World, succeeds
from tests.oauth.conftest import Flow
from tests.scim.conftest import new_directory
from tests.support.applications import forget
from tests.support.databases import Database
from tests.support.dpop import Prover
from tests.support.signer import Signer


@pytest.fixture
def world(flow: Flow, make: Factory, database: Database, tmp_path: Path) -> World:
    make.root()
    return World(flow, make, database, tmp_path)


# Withdrawn consents and removed roles are only known from an export.
KNOWN_FROM_EXPORTS = {"consent", "role", "membership", "group", "app role", "identity provider"}


@pytest.mark.parametrize("by_export", [False, True], ids=["cutoffs", "audit export"])
def test_restored_backup_revives_nothing(world: World, by_export: bool) -> None:
    """BK-2: everything works in the backup, nothing after its end, and nothing in the restored database."""
    everything = set(world.cases)
    export = world.end_all()
    assert world.alive() == set()
    world.restore()
    assert world.alive() == everything, "what the backup revives"
    world.restore()
    options = ("--audit-export", str(export), "--secrets", "keep", "--passwords", "keep") if by_export else ()
    done = run(world.app, "maintenance", "restore", *options)
    assert done.exit_code == 0, done.output
    forget(world.app)
    assert world.alive() == (set() if by_export else KNOWN_FROM_EXPORTS)
    [(event,)] = world.database.query(
        "SELECT after FROM audit_events WHERE CAST(action AS CHAR) = 'instance.restored'"
    )
    receipt = json.loads(Path(done.stdout.split("Receipt: ")[1].strip()).read_text())
    assert json.loads(event)["epoch"] == receipt["epoch"]
    assert len(receipt["ended_again"]) == (14 if by_export else 0), receipt


def test_older_database_is_not_served_without_the_command(world: World) -> None:
    """BK-1."""
    with world.app.app_context():
        require_current_database()
        world.restore()
        with pytest.raises(UnsafeConfiguration, match="maintenance restore"):
            require_current_database()
        assert run(world.app, "maintenance", "restore").exit_code == 0
        require_current_database()


@pytest.mark.parametrize("way", ["api", "command", "portal"])
def test_blocked_secret_works_again_once_it_is_confirmed(app: Flask, make: Factory, way: str) -> None:
    """BK-2: by an administrator; a secret that was created after the restore needs nothing."""
    organization = make.organization()
    make.root()
    client, admin = make.machine(organization, "clients:read"), make.user(organization, role="admin")
    http = app.test_client()

    def mints() -> bool:
        form = {"grant_type": "client_credentials"}
        return http.post("/oauth/token", data=form, headers=client.basic).status_code == 200

    assert run(app, "maintenance", "restore", "--passwords", "keep").exit_code == 0
    assert not mints()
    headers = bearer_header(
        make.bearer(organization, "clients:read", "credentials:read", "credentials:write")
    )
    path = f"/clients/{client.client_id}/credentials"
    [secret] = http.get(path, headers=headers).get_json()["data"]
    assert secret["status"] == "blocked"
    if way == "api":
        answer = http.post(f"{path}/{secret['id']}/confirmation", headers=headers)
        assert answer.status_code == 200 and answer.get_json()["data"]["status"] == "active", answer.text
    elif way == "command":
        done = run(
            app,
            "maintenance",
            "confirm-secrets",
            "--organization",
            organization.slug,
            "--client",
            client.client_id,
        )
        assert done.exit_code == 0 and done.stdout == "1 secrets confirmed.\n", done.output
    else:
        make.sign_in(admin, http)
        page = http.get(f"/portal/{organization.slug}{path}")
        token = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
        assert token is not None and f"{path}/{secret['id']}/confirm" in page.text
        url = f"/portal/{organization.slug}{path}/{secret['id']}/confirm"
        assert http.post(url, data={"csrf_token": token[1]}).status_code == 303
    assert mints()
    assert run(app, "maintenance", "confirm-secrets", "--organization", organization.slug).stdout.startswith(
        "0 "
    )
    assert run(app, "maintenance", "restore").exit_code == 0
    assert not mints(), "a later restore blocks it again"


def test_active_administrators_of_root_get_links(app: Flask, make: Factory) -> None:
    """Another exit status would keep the guide's block from starting the service."""
    root = make.root()
    made = [make.user(root, email=f"r{number}@root.example", role="admin") for number in range(30)]
    with app.app_context():
        update_user(make.actor(root), made[0].public_id, {"status": "disabled"})
    done = run(app, "maintenance", "restore")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("New password of") == 30
    with app.app_context():
        no_passwords = {"settings": {"authentication": {"password": {"enabled": False}}}}
        db.session.execute(update(Organization).where(Organization.is_root).values(no_passwords))
        db.session.commit()
    forget(app)
    done = run(app, "maintenance", "restore")
    assert done.exit_code == 0 and "New password of" not in done.stdout, done.output


def test_receipt_that_cannot_be_written_is_printed(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: what it says is known nowhere else."""
    make.root()

    def fail(_path: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("app.cli.restore.replaced_privately", fail)
    done = run(app, "maintenance", "restore")
    assert done.exit_code == 0 and "The server can start" in done.stderr, done.output
    assert "No space left on device. Keep this:\n{" in done.stdout and '"issued_before"' in done.stdout


@pytest.mark.parametrize(
    ("line", "words"), [("{", "Line 1"), ('{"action": "user.disabled"}', "Line 1"), ("[]", "Line 1")]
)
def test_unreadable_export_changes_nothing(
    app: Flask, make: Factory, tmp_path: Path, line: str, words: str
) -> None:
    make.root()
    token = make.bearer(make.organization(), "clients:read")
    (tmp_path / "export").write_text(line)
    done = run(app, "maintenance", "restore", "--audit-export", str(tmp_path / "export"))
    assert done.exit_code == 1 and words in done.stderr, done.output
    assert app.test_client().get("/clients", headers=bearer_header(token)).status_code == 200


def exported(number: int, organization: str, action: str, target: str, **more: Any) -> str:
    """Return a line of an audit export."""
    event = {
        "id": f"evt_01JDZ8W000000000000000000{number}",
        "organization_id": organization,
        "occurred_at": f"2026-01-01T00:00:0{number}Z",
        "action": action,
        "target": {"id": target},
        "actor": {"id": None},
        "before": None,
        "after": None,
    }
    return json.dumps(event | more)


def test_log_of_root_ends_other_organizations_again(app: Flask, make: Factory, tmp_path: Path) -> None:
    """Nobody can export the log of a deleted organization, so only root's log names it."""
    admin, states = (
        make.actor(make.root()),
        {"deleted": "deleted", "suspended": "suspended", "back": "active", "parked": "suspended"},
    )
    active, suspended = {"status": "active"}, {"status": "suspended"}
    events: list[tuple[str, str, dict[str, str] | None]] = [
        ("deleted", "deleted", None),
        ("suspended", "suspended", None),
        ("back", "suspended", suspended),
        ("back", "deleted", None),
        ("back", "restored", active),
        ("parked", "deleted", None),
        ("parked", "restored", suspended),
    ]
    export = [
        exported(number, "root", f"organization.{action}", slug, after=after)
        for number, (slug, action, after) in enumerate(events)
    ]
    (tmp_path / "export").write_text("\n".join(export))
    for slug in states:
        make.organization(slug)
    done = run(app, "maintenance", "restore", "--audit-export", str(tmp_path / "export"))
    assert done.exit_code == 0, done.output
    with app.app_context():
        assert {slug: get_organization(admin, slug).status for slug in states} == states


def test_change_of_a_client_that_was_disabled_with_it_is_listed(app: Flask, make: Factory) -> None:
    """Its redirect URIs are those of the backup again, which an administrator has to know before enabling it."""
    client = make.client(make.organization("acme")).client_id
    after = {"status": "disabled", "redirect_uris": []}
    with app.app_context():
        export = read_export([exported(1, "acme", "client.updated", client, after=after)])
        end_again(list(export), result := EndedAgain())
    assert (len(result.ended_again), result.failed, len(result.to_review)) == (1, [], 1)


def test_change_in_an_organization_that_the_backup_has_as_deleted_fails(app: Flask, make: Factory) -> None:
    """Whoever restores it would find what had ended there valid again."""
    user = make.user(make.organization("acme"))
    root = make.actor(make.root())
    restored = exported(1, "root", "organization.restored", "acme", after={"status": "active"})
    with app.app_context():
        delete_organization(root, "acme")
        export = read_export([restored, exported(2, "acme", "user.disabled", user.public_id)])
        end_again(list(export), result := EndedAgain())
    assert ["user.disabled" in words for words in result.failed] == [True] and result.not_in_backup == []


def test_what_was_created_after_the_backup_is_no_failure(world: World) -> None:
    """Another exit status would keep the guide's block from starting the service, also if it is repeated."""
    world.back_up()
    with world.app.app_context():
        user, client = (
            world.make.user(world.organization),
            world.make.machine(world.organization, "clients:read"),
        )
        update_user(world.system, user.public_id, {"status": "disabled"})
        update_client(world.system, client.client_id, {"status": "disabled"})
    export = world.end_all()
    world.restore()
    options = ("--audit-export", str(export), "--secrets", "keep", "--passwords", "keep")
    done = run(world.app, "maintenance", "restore", *options)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("Not in this backup, so there is nothing to end: ") == 2


def test_restore_is_refused_while_a_server_is_running(app: Flask, make: Factory) -> None:
    """BK-2: a request of it could store after the cutoff what it decided before."""
    make.root()
    token = make.bearer(make.organization(), "clients:read")
    is_stopped = threading.Event()

    def serve() -> None:
        with app.app_context():
            while not is_stopped.wait(0.2):
                beat()

    with app.app_context():
        beat()
    server = threading.Thread(target=serve)
    server.start()
    try:
        done = run(app, "maintenance", "restore")
    finally:
        is_stopped.set()
        server.join()
    assert done.exit_code == 1 and "Stop all servers" in done.stderr, done.output
    assert app.test_client().get("/clients", headers=bearer_header(token)).status_code == 200
    done = run(app, "maintenance", "restore")
    assert done.exit_code == 0, done.output
    assert app.test_client().get("/clients", headers=bearer_header(token)).status_code == 401


def test_secret_ends_when_it_was_scheduled_to_after_the_backup(world: World) -> None:
    rotated, kept = (world.make.machine(world.organization, "clients:read") for _ in range(2))
    world.back_up()

    def expiries(client: MadeClient) -> set[bool]:
        with world.app.app_context():
            return {
                each.expires_at is not None for each in list_credentials(world.system, client.client_id).items
            }

    with world.app.app_context():
        for client in (rotated, kept):
            rotate_credential(world.system, client.client_id, {"expires_in_seconds": 3600})
        restore_retiring_secrets(world.system, kept.client_id)
    export = world.end_all()
    world.restore()
    assert expiries(rotated) == {False}
    options = ("--audit-export", str(export), "--secrets", "keep", "--passwords", "keep")
    done = run(world.app, "maintenance", "restore", *options)
    assert done.exit_code == 0, done.output
    assert expiries(rotated) == {True} and expiries(kept) == {False}


# They take nothing away, concern what a cutoff invalidates, or can only be repeated by whoever they concern.
NOT_REPEATED = """
    administrator.added browser.forgotten client.registered client_access.cancelled client_access.declined
    client_access.granted
    client_access.requested client_request.approved client_request.created client_request.declined code.replayed
    consent.denied consent.given credential.confirmed credential.created credential.revealed device_code.allowed
    device_code.denied grant.created grant.revoked group.created
    identity.linked identity_provider.created identity_provider.failed invitation.accepted invitation.created
    invitation.revoked mail.delayed
    mail.refused mail.tested organization.exported organization.updated passkey.counter_went_back passkey.registered
    passkey.renamed playground.request_sent playground.started provisioning_token.created provisioning_token.deleted
    recovery_code.used recovery_codes.renewed
    refresh_token.reused registration_token.created
    registration_token.revoked resource.defined scope.added second_factor.added second_factor.failed session.ended
    session.ended_by_provider session.others_ended session.started sign_in.failed
    sign_in.first_proof_given signing_key.activated signing_key.created signing_key.retired
    token.exchanged token.revoked tokens.revoked user.created
    user.email_proof_requested user.email_verified user.password_reset_requested user.registered
    user.registration_refused user.signed_out user_import.cancelled user_import.ended user_import.failed
    user_import.started webhook.created webhook.disabled
"""


def test_every_event_is_repeated_or_need_not_be() -> None:
    """BK-2: whoever adds an event decides what a restored backup does with it."""
    actions = {action_for_event_type(name) for name in EVENT_TYPES}
    assert actions - RELEVANT_ACTIONS == set(NOT_REPEATED.split())


def test_changes_that_were_undone_after_the_backup_are_not_repeated(world: World) -> None:
    user, client = world.make.user(world.organization), world.make.machine(world.organization, "clients:read")
    slug = world.organization.slug
    world.back_up()
    with world.app.app_context():
        for status in ("disabled", "active"):
            update_user(world.system, user.public_id, {"status": status})
            update_client(world.system, client.client_id, {"status": status})
        [group] = [each for each in list_groups(world.system, slug).items if each.members]
        [member] = list_members(world.system, slug, group.public_id).items
        remove_member(world.system, slug, group.public_id, member.user.public_id)
        add_member(world.system, slug, group.public_id, {"user_id": member.user.public_id})
    answer = world.app.test_client().get("/audit-events/export", headers=bearer_header(world.reader))
    export = world.folder / "undone.ndjson"
    export.write_bytes(answer.data)
    world.restore()
    options = ("--audit-export", str(export), "--secrets", "keep", "--passwords", "keep")
    done = run(world.app, "maintenance", "restore", *options)
    assert done.exit_code == 0 and "Ended again" not in done.stdout, done.output


def used_values(flow: Flow, make: Factory) -> dict[str, Callable[[], Callable[[], bool]]]:
    """Return functions that make a value for one use, and return the function that uses it."""
    organization, signer = flow.organization, Signer()
    client = make.machine(organization, "reports:read", **signer.registration)

    def assertion(**changes: Any) -> Callable[[], bool]:
        fields = signer.fields(client.client_id, organization.issuer, **changes)
        form = {"grant_type": "client_credentials"} | fields
        return lambda: flow.http.post("/oauth/token", data=form).status_code == 200

    def proof() -> Callable[[], bool]:
        headers = client_of_secret.basic | Prover().headers(
            "POST", f"{flow.app.config['TEST_BASE_URL']}/oauth/token"
        )
        form = {"grant_type": "client_credentials"}
        return lambda: flow.http.post("/oauth/token", data=form, headers=headers).status_code == 200

    def totp() -> Callable[[], bool]:
        user, secret = make.user(organization), new_secret()
        step = int(clock.now().timestamp()) // STEP_SECONDS
        store_authenticator_app(organization.id, user.id, secret, step - 2)
        return lambda: use_authenticator_code(organization.id, user.id, totp_code(secret, step))

    def passkey() -> Callable[[], bool]:
        challenge = issue_challenge(organization, SIGN_IN, "browser")

        def use() -> None:
            validate_challenge(organization_of(flow), SIGN_IN, "browser", challenge)
            consume_challenge(organization, challenge)

        return lambda: succeeds(use)

    client_of_secret = make.machine(organization, "reports:read")
    return {
        "assertion": assertion,
        "assertion with an expiry only": lambda: assertion(iat=None),
        "proof": proof,
        "authenticator code": totp,
        "passkey challenge": passkey,
    }


def organization_of(flow: Flow) -> OrganizationSnapshot:
    """Return the organization as the database has it now."""
    return get_organization_by_slug(flow.organization.slug)


def test_value_for_one_use_is_not_used_again_after_a_restore(
    flow: Flow, make: Factory, database: Database
) -> None:
    """BK-2: the backup does not know that it was used. One that is made later works."""
    make.root()
    with flow.app.app_context():
        make_value = used_values(flow, make)
        values = {name: make() for name, make in make_value.items()}

        def usable() -> set[str]:
            forget(flow.app)
            return {name for name, use in values.items() if use()}

        def put_back() -> None:
            database.query("DELETE FROM used_identifiers")
            database.query("UPDATE authenticator_apps SET last_step = 0")

        assert usable() == set(values)
        assert usable() == set()
        put_back()
        assert usable() == set(values), "what the backup revives"
        put_back()
        done = run(flow.app, "maintenance", "restore", "--secrets", "keep", "--passwords", "keep")
        assert done.exit_code == 0, done.output
        assert usable() == set()
        # As if six minutes had passed since.
        database.query("UPDATE organizations SET restored_at = '2020-01-01 00:00:00.000000'")
        assert usable() == set(values)


def test_tokens_from_before_a_restore_are_not_listed_as_usable(app: Flask, make: Factory) -> None:
    make.root()
    directory = new_directory(app, make, make.organization())
    actor, provider = make.actor(directory.organization), directory.record.public_id

    def listed() -> tuple[int, int]:
        return len(list_provisioning_tokens(actor, provider)), len(list_registration_tokens(actor).items)

    with app.app_context():
        create_registration_token(actor, {"name": "CI"})
        assert listed() == (1, 1)
    assert run(app, "maintenance", "restore").exit_code == 0
    with app.app_context():
        assert listed() == (0, 0)
        for _ in range(MAX_TOKENS_PER_PROVIDER):
            create_provisioning_token(actor, provider)
