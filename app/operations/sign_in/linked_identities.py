"""Linked identities: the accounts at identity providers that sign a user in."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, delete, select, update

from app.extensions import db
from app.models.base import has_key, is_of_user, is_same
from app.models.identity_provider import IdentityProvider, LinkedIdentity
from app.models.session import Session
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import UserSnapshot, get_user, hold_user, parse_user_id
from app.operations.mail.notices import notify_user
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.identity_providers import (
    IdentityProviderRecord,
    hold_provider,
)
from app.operations.sign_in.offered_providers import OfferedProvider, list_offered_providers
from app.operations.sign_in.reauthentication import (
    require_active_session,
    require_fresh_sign_in,
    require_fresh_user_sign_in,
)
from app.operations.sign_in.sessions import end_access_of_user, rotate_session_token
from app.operations.sign_in.usable_identities import can_sign_in
from app.operations.store import audit, clock
from app.operations.store.rows import make_record
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    read,
    savepoint,
    transaction,
)
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import HasPublicId, new_id, parse_public_id, public_id
from app.rules.sign_in.identity_providers import MAX_PROVIDERS_PER_ORGANIZATION
from app.rules.sign_in.provider_tokens import ProviderIdentity

PREFIX = "idn"


class LinkedIdentityRecord(HasPublicId, Struct, frozen=True):
    """A linked account, with the provider it belongs to. ``email`` is the one there at the last sign-in."""

    id_prefix = PREFIX
    id: UUID
    user_id: UUID
    provider_id: UUID
    provider_slug: str
    provider_name: str
    provider_status: str
    subject: str
    email: str | None
    created_at: datetime
    last_used_at: datetime | None

    @property
    def provider_public_id(self) -> str:
        """Return the provider's public id, ``idp_…``."""
        return public_id("idp", self.provider_id)


class OwnIdentities(Struct, frozen=True):
    """A user's linked accounts, and the providers of which they may link one."""

    linked: tuple[LinkedIdentityRecord, ...]
    offered: tuple[OfferedProvider, ...]


_COLUMNS = (
    *LinkedIdentity.__table__.c,
    IdentityProvider.slug.label("provider_slug"),
    IdentityProvider.name.label("provider_name"),
    IdentityProvider.status.label("provider_status"),
)


@read
def list_own_identities(actor: Actor) -> OwnIdentities:
    """Return the actor's own linked accounts. Raises Forbidden for any other account."""
    user_id = actor.require_own_account()
    linked = list_identities_of_user(actor.organization_id, user_id)
    taken = {identity.provider_id for identity in linked}
    offered = list_offered_providers(get_organization_by_id(actor.organization_id, fresh=False))
    return OwnIdentities(linked, tuple(provider for provider in offered if provider.id not in taken))


@read
def list_user_identities(actor: Actor, user_id: str) -> tuple[LinkedIdentityRecord, ...]:
    """List the accounts that a user has linked, oldest first. Raises Forbidden, NotFound."""
    actor.require("users:read")
    user = get_user(actor.organization_id, parse_user_id(user_id))
    return list_identities_of_user(user.organization_id, user.id)


@read
def list_identities_of_user(organization_id: str, user_id: UUID) -> tuple[LinkedIdentityRecord, ...]:
    """List the accounts that a user has linked, oldest first."""
    return _find(is_of_user(LinkedIdentity, organization_id, user_id))


@read
def find_identity(provider: IdentityProviderRecord, subject: str) -> LinkedIdentityRecord | None:
    """Find the link of an account at the provider."""
    found = _find(
        (LinkedIdentity.organization_id == provider.organization_id)
        & (LinkedIdentity.provider_id == provider.id)
        & (LinkedIdentity.subject == subject)
    )
    return found[0] if found else None


@transaction
def link_identity(
    actor: Actor, provider: IdentityProviderRecord, user: UserSnapshot, identity: ProviderIdentity
) -> None:
    """Link the account at the provider to the user, who is told by email.

    Raises Conflict if the account is linked to another user, the user has linked another one of the provider, or the
    user or the provider changed since they were read. Audit: ``identity.linked``.
    """
    if hold_user(user.organization_id, user.id) != user.version:
        raise Conflict("The user was changed by another request. Try again.", code="changed_meanwhile")
    hold_provider(provider)
    taken = Conflict("This account is linked to another user.", code="identity_taken")
    if find_identity(provider, identity.subject) is not None:
        raise taken
    if any(
        linked.provider_id == provider.id for linked in list_identities_of_user(user.organization_id, user.id)
    ):
        raise Conflict("You have already linked an account of this provider.", code="already_linked")
    now = clock.now()
    row_id: UUID = current_unit_of_work().stable_value("linked identity", new_id)
    with savepoint(on_duplicate=taken):
        db.session.add(
            LinkedIdentity(
                organization_id=user.organization_id,
                id=row_id,
                provider_id=provider.id,
                user_id=user.id,
                subject=identity.subject,
                email=identity.email,
                created_at=now,
                last_used_at=now,
            )
        )
    audit.record_user_event(
        actor, "identity.linked", user.id, after=_facts(row_id, provider.public_id, identity.email)
    )
    notify_user(actor, user.id, "identity_linked", provider=provider.name, account=identity.email or "")


@transaction
def record_use(linked: LinkedIdentityRecord, organization_id: str, email: str | None) -> bool:
    """Record that the account signed its user in, and return whether the link still exists."""
    used = count_changed(
        update(LinkedIdentity)
        .where(has_key(LinkedIdentity, organization_id, linked.id), LinkedIdentity.user_id == linked.user_id)
        .values(last_used_at=clock.now(), email=email)
    )
    return used == 1


@transaction
def unlink_own_identity(actor: Actor, identity_id: str) -> str | None:
    """Remove one of the actor's own links, end their other sessions and grants (SS-6), and return the new cookie.

    Raises FreshSignInRequired, NotFound, and Conflict if the user could not sign in again. Audit:
    ``identity.unlinked``.
    """
    user_id = actor.require_own_account()
    organization = get_organization_by_id(actor.organization_id)
    require_fresh_sign_in(actor)
    hold_user(organization.id, user_id)
    end_access_of_user(actor, user_id, reason="identity_unlinked", keep=actor.session_id)
    _unlink(actor, organization.id, user_id, identity_id)
    if not can_sign_in(organization, get_user(organization.id, user_id)):
        raise Conflict(
            "This account is your only way to sign in. Set a password or add a passkey first.",
            code="last_way_in",
        )
    require_active_session(actor)
    return rotate_session_token(actor)


@transaction
def unlink_user_identity(actor: Actor, user_id: str, identity_id: str) -> LinkedIdentityRecord:
    """Remove the link of a user, and end the user's sessions and grants.

    Raises Forbidden (also when the user has a role that the actor lacks), NotFound, FreshSignInRequired for a user who
    signed in too long ago. Audit: ``identity.unlinked``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, parse_user_id(user_id))
    require_fresh_user_sign_in(actor)
    hold_user(user.organization_id, user.id)
    # Sign-ins that wait are locked before links, as where a provider is deleted.
    end_access_of_user(actor, user.id, reason="identity_unlinked")
    return _unlink(actor, user.organization_id, user.id, identity_id)


@transaction
def unlink_all_identities(actor: Actor, user_id: UUID) -> int:
    """Remove all links of a user, and return their number, except the one by which the actor's session began.

    Audit: ``identity.unlinked`` for each.
    """
    kept = None
    if actor.session_id is not None:
        session = has_key(Session, actor.home_organization_id, actor.session_id)
        kept = db.session.scalar(select(Session.provider_id).where(session))
    linked = list_identities_of_user(actor.organization_id, user_id)
    ended = {each.id: each for each in linked if each.provider_id != kept}
    if ended:
        is_ended = is_of_user(LinkedIdentity, actor.organization_id, user_id) & LinkedIdentity.id.in_(ended)
        count_changed(delete(LinkedIdentity).where(is_ended))
    for each in ended.values():
        _on_unlinked(actor, each)
    return len(ended)


@transaction
def delete_identities_of_user(organization_id: str, user_id: UUID) -> int:
    """Delete the links of a user and return their number. Call it in the transaction that audits it."""
    return count_changed(delete(LinkedIdentity).where(is_of_user(LinkedIdentity, organization_id, user_id)))


def _find(condition: ColumnElement[bool]) -> tuple[LinkedIdentityRecord, ...]:
    rows = db.session.execute(
        select(*_COLUMNS)
        .join(IdentityProvider, is_same(IdentityProvider.id, LinkedIdentity.provider_id))
        .where(condition)
        .order_by(LinkedIdentity.id)
        .limit(MAX_PROVIDERS_PER_ORGANIZATION)
    )
    return tuple(make_record(LinkedIdentityRecord, row) for row in rows)


def _unlink(actor: Actor, organization_id: str, user_id: UUID, identity_id: str) -> LinkedIdentityRecord:
    row_id = parse_public_id(PREFIX, identity_id)
    linked = next(
        (one for one in list_identities_of_user(organization_id, user_id) if one.id == row_id), None
    )
    if linked is None or not count_changed(
        delete(LinkedIdentity).where(has_key(LinkedIdentity, organization_id, linked.id))
    ):
        raise NotFound("There is no such linked account.")
    _on_unlinked(actor, linked)
    return linked


def _on_unlinked(actor: Actor, linked: LinkedIdentityRecord) -> None:
    facts = _facts(linked.id, linked.provider_public_id, linked.email)
    audit.record_user_event(actor, "identity.unlinked", linked.user_id, before=facts)
    values = {"provider": linked.provider_name, "account": linked.email or ""}
    notify_user(actor, linked.user_id, "identity_unlinked", **values)


def _facts(identity_id: UUID, provider_id: str, email: str | None) -> dict[str, str | None]:
    return {"identity": public_id(PREFIX, identity_id), "provider": provider_id, "email": email}
