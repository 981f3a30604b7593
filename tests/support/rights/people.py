"""People of each role, and things that are theirs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from flask import Flask
from sqlalchemy import insert

from app.extensions import db
from app.models.second_factor import AuthenticatorApp
from app.operations.clients import credentials, resources
from app.operations.organizations import roles
from app.operations.sign_in import sessions
from app.operations.store import clock
from app.operations.users import import_runner
from app.rules.identifiers import public_id
from tests.factories import Factory, MadeUser
from tests.support.importing import begin
from tests.support.rights import ROOT, SUPPORT, SUPPORT_PERMISSIONS
from tests.support.user_tokens import user_token
from tests.support.world import Corner
from tests.support.world_rows import consented, granted, issued, refused, registered, wanted

# Whoever holds ``:own`` reaches of these what they registered themselves, and sees no other.
OWNED = ("clientId", "credentialId", "resourceId", "failedRequestId", "grantId", "tokenId", "consentId")


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of a role, with a token that carries every scope."""

    role: str
    user: MadeUser
    token: str
    query: dict[str, str]


def person_of(app: Flask, make: Factory, corner: Corner, role: str) -> Person:
    """Somebody of the role in the corner's organization; of ``root``, one who names that organization."""
    if role == ROOT:
        user = make.user(make.root(), role="admin")
        return Person(role, user, user_token(app, make, user), {"organization_id": corner.organization.slug})
    if role == SUPPORT:
        with app.app_context():
            fields = {"id": SUPPORT, "permissions": list(SUPPORT_PERMISSIONS)}
            roles.create_role(make.actor(corner.organization), fields)
    user = make.user(corner.organization, role=None if role == "member" else role)
    return Person(role, user, user_token(app, make, user), {})


def things_of(app: Flask, make: Factory, corner: Corner, owner: MadeUser) -> dict[str, str]:
    """Ids of things that the owner registered; what nobody owns is made afresh, or is the corner's."""
    with app.app_context():
        actor = make.actor(corner.organization, user=owner)
        client = make.client(corner.organization, by=actor)
        secret = credentials.create_credential(actor, client.client_id).credential
        fields = {"identifier": f"urn:{owner.public_id}", "name": "Own", "scopes": []}
        resource = resources.define_resource(actor, fields)
        somebody = make.user(corner.organization)
        _with_app(somebody)
        _, session = sessions.start_session(corner.organization, somebody.id)
        return {
            **corner.ids,
            "clientId": client.client_id,
            "credentialId": secret.public_id,
            "resourceId": resource.public_id,
            "failedRequestId": refused(client, datetime.now(UTC)),
            "grantId": granted(client, make.user(corner.organization)),
            "tokenId": issued(client),
            "consentId": consented(client, make.user(corner.organization)),
            "userId": somebody.public_id,
            "sessionId": public_id("ses", session),
        }


def spare_of(app: Flask, make: Factory, corner: Corner) -> dict[str, dict[str, str]]:
    """By operation: ids of things of its own, where another operation ends what stands there."""
    with app.app_context():
        actor = make.actor(corner.organization)
        # What is decided about a client is decided for all who asked for it.
        asked = wanted(make.client(corner.organization), make.user(corner.organization))
        waiting = registered(corner.organization, "another@waiting.example")
        imported = begin(actor, "email\nother@example.com\n", dry=True).public_id
        administrator = make.actor(corner.organization, user=make.user(corner.organization, role="admin"))
        checked = begin(administrator, "email\nchecked@example.com\n", dry=True).public_id
        import_runner.run_import(administrator, checked)
    return {
        "declineClientRequest": {"clientRequestId": asked},
        "rejectRegistration": {"registrationId": waiting},
        "cancelUserImport": {"importId": imported},
        "startUserImport": {"importId": checked},
    }


def _with_app(user: MadeUser) -> None:
    """The user has an app that shows codes, whose key nobody asks for here."""
    now = clock.now()
    db.session.execute(
        insert(AuthenticatorApp).values(
            organization_id=user.organization.id,
            user_id=user.id,
            sealed_secret=b"sealed",
            last_step=0,
            created_at=now,
        )
    )
    db.session.commit()
