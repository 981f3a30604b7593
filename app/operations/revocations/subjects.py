"""What a wider revocation selects: found, and asked whether the actor may end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.client import DELETED, Client
from app.models.credential import Credential
from app.models.grant import Grant
from app.models.session import Session
from app.operations.people.user_status import require_reach
from app.operations.people.users import get_user
from app.operations.registration.client_records import get_row
from app.rules.actor import Actor
from app.rules.errors import Forbidden, NotFound
from app.rules.identifiers import parse_public_id
from app.rules.tokens.wider_revocation import (
    CLIENT,
    CREDENTIAL,
    GRANT,
    PREFIXES,
    SESSION,
    USER,
    RevocationOrder,
)

REVOKE = "tokens:revoke"


@dataclass(frozen=True, slots=True)
class Subject:
    """What was selected: ``public_id`` is written on the receipt, ``row_id`` is None for the organization itself."""

    kind: str
    public_id: str
    row_id: UUID | None
    client_id: UUID | None = None
    user_id: UUID | None = None


def find_subject(actor: Actor, slug: str, order: RevocationOrder) -> Subject:
    """The thing that the order names, which the actor may end in the organization acted in.

    Needs ``tokens:revoke``, or its ``:own`` form for what hangs from a client of the actor's own. Sign-ins need
    ``users:write``, and that the actor holds every role of the user. Raises Forbidden, NotFound.
    """
    actor.require_some(REVOKE)
    if order.kind in {CLIENT, CREDENTIAL, GRANT}:
        return _of_a_client(actor, order)
    actor.require(REVOKE)
    if order.kind in {USER, SESSION}:
        return _of_a_user(actor, order)
    if order.sessions:
        actor.require("users:write")
    return Subject(order.kind, slug, None)


def _of_a_client(actor: Actor, order: RevocationOrder) -> Subject:
    if order.kind == CLIENT:
        row = get_row(actor, order.subject, REVOKE)
        return Subject(CLIENT, order.subject, row.id, client_id=row.id)
    model: Any = Credential if order.kind == CREDENTIAL else Grant
    row_id = parse_public_id(PREFIXES[order.kind], order.subject)
    found = (
        None
        if row_id is None
        else db.session.execute(
            select(model.client_id, Client.created_by_user_id)
            .join(Client, (Client.organization_id == model.organization_id) & (Client.id == model.client_id))
            .where(
                model.organization_id == actor.organization_id, model.id == row_id, Client.status != DELETED
            )
        ).first()
    )
    # For who holds it for own clients alone, what hangs from others' does not exist.
    if found is None or not actor.may(REVOKE, owner_id=found.created_by_user_id):
        raise NotFound("There is no such secret." if order.kind == CREDENTIAL else "There is no such grant.")
    return Subject(order.kind, order.subject, row_id, client_id=found.client_id)


def _of_a_user(actor: Actor, order: RevocationOrder) -> Subject:
    if order.kind == USER:
        user_id = parse_public_id("usr", order.subject)
        if user_id is None:
            raise NotFound("There is no such user.")
        _reach(actor, user_id, order)
        return Subject(USER, order.subject, user_id, user_id=user_id)
    row_id = parse_public_id("ses", order.subject)
    # The row goes with the sign-in; what was given in it may live on.
    found = None if row_id is None else _user_of_session(actor.organization_id, row_id)
    if found is None:
        raise NotFound("There is no such sign-in.")
    _reach(actor, found, order)
    return Subject(SESSION, order.subject, row_id, user_id=found)


def _reach(actor: Actor, user_id: UUID, order: RevocationOrder) -> None:
    if not order.sessions:
        get_user(actor.organization_id, user_id)
        return
    try:
        require_reach(actor, user_id)
    except Forbidden as refusal:
        if order.kind == USER and not actor.may("users:write"):
            words = (
                "Ending sign-ins needs the permission users:write. Send sessions: false to end tokens alone."
            )
            raise Forbidden(words, permission="users:write") from refusal
        raise


def _user_of_session(organization_id: str, session_id: UUID) -> UUID | None:
    for model, column in ((Session, Session.id), (Grant, Grant.session_id)):
        user_id: UUID | None = db.session.scalar(
            select(model.user_id)
            .where(model.organization_id == organization_id, column == session_id)
            .limit(1)
        )
        if user_id is not None:
            return user_id
    return None
