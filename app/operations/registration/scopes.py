"""The registry of scopes that an organization knows, with the words that consent shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select

from app.extensions import db
from app.models.client import Scope
from app.operations import audit, clock
from app.operations.transaction import read, transaction
from app.rules.actor import Actor
from app.rules.identifiers import new_id

IDENTITY_SCOPES = {
    "openid": ("Sign you in", "Know which account is yours."),
    "profile": ("See your name", "Your name and the other parts of your profile."),
    "email": ("See your e-mail address", "Your address, and whether it was verified."),
    "address": ("See your postal address", "The address in your profile."),
    "phone": ("See your phone number", "The number in your profile, and whether it was verified."),
    "offline_access": ("Keep access while you are away", "Until you remove it."),
}


@dataclass(frozen=True, slots=True)
class ScopeRecord:
    """One scope; ``title`` is None while it wants words for the consent page."""

    name: str
    title: str | None
    description: str | None
    is_identity: bool


def seed_identity_scopes(organization_id: str) -> None:
    """The scopes of OpenID Connect stand in a new organization's registry; part of its creation."""
    moment = clock.now()
    for name, (title, description) in IDENTITY_SCOPES.items():
        db.session.add(
            Scope(
                organization_id=organization_id,
                id=new_id(),
                name=name,
                title=title,
                description=description,
                is_identity=True,
                created_at=moment,
            )
        )


@read
def list_scopes(actor: Actor) -> list[ScopeRecord]:
    """Every scope of the actor's organization, by name; an organization has at most a few hundred."""
    rows = db.session.scalars(
        select(Scope).where(Scope.organization_id == actor.organization_id).order_by(Scope.name).limit(1000)
    )
    return [ScopeRecord(row.name, row.title, row.description, row.is_identity) for row in rows]


@transaction
def add_scopes(actor: Actor, names: Iterable[str]) -> list[str]:
    """Unknown names stand in the registry afterwards, without words yet; returns those that were new.

    Audit: ``scope.added``.
    """
    actor.require("resources:write")
    known = {scope.name for scope in list_scopes(actor)}
    new = [name for name in dict.fromkeys(names) if name not in known]
    for name in new:
        db.session.add(
            Scope(
                organization_id=actor.organization_id,
                id=new_id(),
                name=name,
                created_at=clock.now(),
                created_by=actor.label[:200],
            )
        )
        audit.record(actor, "scope.added", target_type="scope", target_id=name[:64])
    return new
