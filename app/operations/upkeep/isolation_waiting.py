"""What an organization of the isolation check has beside its people and clients: what waits for a mail, a person or a
file elsewhere is made here at once, and kept from moving while it is looked at.
"""

from __future__ import annotations

import io
from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import update

from app.extensions import db
from app.models.event import OutboxMessage
from app.operations import clock, directory
from app.operations.addresses import registrations, waiting
from app.operations.addresses.questions import KIND
from app.operations.consents import client_requests, consent_lists, consents
from app.operations.directory import OrganizationView
from app.operations.mail.sealed_payloads import seal_payload
from app.operations.people.sessions import find_session
from app.operations.revocations.wider import revoke_widely
from app.operations.transaction import transaction
from app.operations.upkeep.outbox import Message
from app.operations.user_imports import uploads
from app.operations.webhooks import deliveries, endpoints
from app.rules.actor import Actor
from app.rules.errors import NotFound, Unavailable
from app.rules.identifiers import public_id

# Longer than any check lasts; the organization is purged after it.
_LATER = timedelta(days=1)


def build_waiting(
    actor: Actor,
    organization: OrganizationView,
    client_id: str,
    session_token: str,
    *,
    marker: str,
    password_hash: str,
) -> dict[str, str]:
    """One of each stands; returns their ids by the names that the paths of the API have for them.

    ``session_token`` is of an administrator, ``client_id`` of the app whom they allow. Audit: as each of them.
    """
    session, client = find_session(session_token), directory.find_client(client_id, fresh=True)
    if session is None or client is None:
        raise Unavailable("The isolation check could not sign in.")
    person = session.actor()
    client_requests.ask_for_client(person, client, ("openid",), marker)
    _allow(person, session.user_id, client_id)
    _ask_for_account(organization, marker, password_hash)
    receipt = revoke_widely(
        actor,
        organization.slug,
        # Before anything of it was issued: nothing ends.
        {"client_id": client_id, "issued_before": "2020-01-01T00:00:00Z", "reason": marker},
    ).receipt
    file = io.BytesIO(f"email,name\n{marker}@import.invalid,{marker}\n".encode())
    # In the foreground of nobody: no worker takes it up, and it waits.
    upload = uploads.receive_upload(actor, file.read, file_format="csv", name=marker, is_foreground=True)
    uploads.confirm_upload(actor, upload, is_dry_run=True)
    webhook_id, delivery_id = _tell(actor, marker)
    return {
        "userId": public_id("usr", session.user_id),
        "sessionId": public_id("ses", session.id),
        "clientRequestId": client_requests.list_client_requests(actor).items[0].public_id,
        "consentId": consent_lists.list_given_consents(actor).items[0].public_id,
        "registrationId": waiting.list_registrations(actor).items[0].public_id,
        "revocationId": receipt.public_id or "",
        "importId": public_id("imp", upload.id),
        "webhookId": webhook_id,
        "deliveryId": delivery_id,
    }


@transaction
def _allow(person: Actor, user_id: UUID, client_id: str) -> None:
    client = directory.find_client(client_id, fresh=True)
    if client is None:
        raise NotFound("There is no such client.")
    consents.remember(person, client, user_id, ("openid", "email"))


def _ask_for_account(organization: OrganizationView, marker: str, password_hash: str) -> None:
    """As if the outbox had got to it: somebody waits for an account."""
    asked = {
        "email": f"waiting-{marker}@isolation.invalid",
        "name": marker,
        "password_hash": password_hash,
        "address": None,
        "request_id": None,
    }
    now = clock.now()
    payload = seal_payload(organization.id, KIND, asked)
    registrations.answer(Message(organization.id, uuid4(), KIND, "isolation check", payload, 1, now, now))


@transaction
def _tell(actor: Actor, marker: str) -> tuple[str, str]:
    """A webhook that was told of one event; its message, and what else waits to leave, stays here."""
    made = endpoints.create_webhook(
        actor,
        {"url": "https://isolation.invalid/hook", "event_types": ["user.deleted"], "description": marker},
    )
    delivery = deliveries.send_test(actor, made.record.public_id)
    db.session.execute(
        update(OutboxMessage)
        .where(OutboxMessage.organization_id == actor.organization_id, OutboxMessage.done_at.is_(None))
        .values(available_at=clock.now() + _LATER)
        .execution_options(synchronize_session=False)
    )
    return made.record.public_id, delivery.public_id
