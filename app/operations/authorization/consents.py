"""Consents: what users allowed clients, until withdrawn or expired."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import bindparam, delete, or_, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.grant import AuthorizationCode, Consent, Grant
from app.models.token import AccessToken, DeviceCode
from app.operations.clients.resources import get_catalog
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.directory.users import hold_user
from app.operations.grants import grants
from app.operations.grants.grants import grant_issued_after_cutoffs
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, insert_or_update, transaction
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import required_scopes
from app.rules.authorization.consents import (
    EXPIRIES,
    SCOPES,
    ConsentExpiry,
    changed_parts,
    consent_expiry,
    consent_snapshot,
    max_consent_seconds,
    offered_expiries,
    scope_expiries,
    unexpired_scopes,
)
from app.rules.authorization.interaction import depends_on_user_consent
from app.rules.identifiers import new_id
from app.rules.scopes import is_subset, restrict_scopes

_SELECT_CONSENT = select(
    Consent.scope, Consent.expires_at, Consent.shown, Consent.updated_at, Consent.declined
)
_FIND_CONSENT = CompiledQuery(
    _SELECT_CONSENT.where(
        Consent.organization_id == bindparam("organization_id"),
        Consent.user_id == bindparam("user_id"),
        Consent.client_id == bindparam("client_id"),
    )
)


def revoke_access(actor: Actor, user_id: UUID | None, client_id: UUID) -> tuple[int, list[str]]:
    """Revoke the client's grants, codes and device codes for the user, in the current transaction.

    Return the number of revoked grants and their scopes. The caller records the audit event.
    """
    if user_id is not None:
        hold_user(actor.organization_id, user_id)
    active_grants = _active_grants(actor, user_id, client_id)
    for model in (AuthorizationCode, DeviceCode):
        db.session.execute(
            update(model)
            .where(
                model.organization_id == actor.organization_id,
                model.client_id == client_id,
                model.user_id == user_id,
                model.used_at.is_(None),
            )
            .values(expires_at=clock.now())
        )
    ended = sum(
        grants.revoke_grant_by_id(actor, grant.id, reason="consent_withdrawn") for grant in active_grants
    )
    return ended, list(dict.fromkeys(scope for grant in active_grants for scope in grant.scope.split()))


def revoke_access_with_scopes(actor: Actor, user_id: UUID, client_id: UUID, scopes: Collection[str]) -> int:
    """Revoke only what has one of the scopes, or claims that only one of them releases.

    A whole grant is revoked, because its tokens contain the scopes. The app can request the remaining scopes again.
    """
    now = clock.now()
    for model in (AuthorizationCode, DeviceCode):
        claims = (AuthorizationCode.claims,) if model is AuthorizationCode else ()
        pending = db.session.execute(
            select(model.id, model.scope, *claims).where(
                model.organization_id == actor.organization_id,
                model.client_id == client_id,
                model.user_id == user_id,
                model.used_at.is_(None),
                model.expires_at > now,
            )
        ).all()
        to_expire = [
            row.id for row in pending if _has_any_scope(row.scope, getattr(row, "claims", None), scopes)
        ]
        if to_expire:
            count_changed(
                update(model)
                .where(
                    model.organization_id == actor.organization_id,
                    model.id.in_(to_expire),
                    model.used_at.is_(None),
                )
                .values(expires_at=now)
            )
    # Read after the statements above have waited for codes that are being redeemed, whose grants are among these.
    return sum(
        grants.revoke_grant_by_id(actor, grant.id, reason="scope_withdrawn")
        for grant in _active_grants(actor, user_id, client_id)
        if _has_any_scope(grant.scope, grant.claims, scopes)
    )


def _active_grants(actor: Actor, user_id: UUID | None, client_id: UUID) -> Sequence[Any]:
    # Also grants that cannot be refreshed any more, because their access tokens may still be valid. There are at most
    # grants.MAX_ACTIVE_GRANTS.
    return db.session.execute(
        select(Grant.id, Grant.scope, Grant.claims).where(
            Grant.organization_id == actor.organization_id,
            Grant.user_id == user_id,
            Grant.client_id == client_id,
            Grant.revoked_at.is_(None),
            Grant.expires_at > clock.now(),
            grant_issued_after_cutoffs(),
        )
    ).all()


def _has_any_scope(scope: str, claims: Mapping[str, Any] | None, scopes: Collection[str]) -> bool:
    return not {*scope.split(), *required_scopes(claims)}.isdisjoint(scopes)


class ConsentState(Struct, frozen=True):
    """The current state of a user's consent for a client.

    ``scopes`` are those that it covers: none if there is no consent, if it expired, or if the app has changed since.
    ``changes`` then names what differs from what was ``shown`` at ``given_at``. ``declined`` are optional scopes that
    the user declined. They are not requested again until the app's scopes change. ``expiries`` are those of scopes that
    expire before the consent does, at ``ends_at``.
    """

    scopes: tuple[str, ...] = ()
    ends_at: datetime | None = None
    changes: tuple[str, ...] = ()
    shown: Mapping[str, Any] | None = None
    given_at: datetime | None = None
    declined: tuple[str, ...] = ()
    expiries: Mapping[str, datetime] = {}

    def find_expiry(self, scopes: Collection[str]) -> datetime | None:
        """Return when the consent for these scopes expires, or None if it does not."""
        ends = (self.ends_at, *(self.expiries.get(scope) for scope in scopes))
        return min((end for end in ends if end is not None), default=None)


NO_CONSENT = ConsentState()


def get_consent_state(client: ClientSnapshot, user_id: UUID) -> ConsentState:
    """Return the current state of the user's consent for the client."""
    row = _FIND_CONSENT.first(organization_id=client.organization.id, user_id=user_id, client_id=client.id)
    return NO_CONSENT if row is None else _state_of(client, row)


def covered_scopes(organization_id: str, consent: Any) -> tuple[str, ...]:
    """Return the scopes that a consent covers now; ``consent`` has the columns of its row.

    Those that expired earlier are left out, and those that were deleted and created again since.
    """
    scopes = unexpired_scopes(consent.scope, consent.shown, clock.now())
    return get_catalog(organization_id).select_allowed(scopes, consent.updated_at)


def _state_of(client: ClientSnapshot, row: Any) -> ConsentState:
    ends_at = consent_expiry(
        row.updated_at, row.expires_at, max_consent_seconds(client.organization.settings)
    )
    if ends_at is not None and ends_at <= clock.now():
        return NO_CONSENT
    shown = _shown_of(client)
    changes = changed_parts(row.shown, shown)
    declined = _current_declined(row, shown)
    state = ConsentState(
        covered_scopes(client.organization.id, row),
        ends_at,
        changes,
        row.shown,
        row.updated_at,
        declined,
        scope_expiries(row.shown),
    )
    return replace(state, scopes=(), ends_at=None, declined=()) if changes else state


def depends_on_user(client: ClientSnapshot, scopes: Collection[str]) -> bool:
    """Return whether the client needs the user's own consent for the scopes."""
    return depends_on_user_consent(
        scopes,
        trust=client.trust,
        settings=client.organization.settings,
        approval=client.approval,
        approved_scopes=client.document.get("approved_scopes") or (),
    )


def is_consent_withdrawn(client: ClientSnapshot, grant: grants.NewGrant, consented: str | None) -> bool:
    """Return whether a grant that is not stored yet lacks the consent that its code was issued with (CD-8).

    ``consented`` are the scopes of the user's consent now, None without one. A code is issued without a page for a
    consent that was read before, and one that is withdrawn at that moment does not expire the code.
    """
    scopes = (*grant.scopes, *required_scopes(grant.claims))
    return depends_on_user(client, scopes) and not is_subset(scopes, (consented or "").split())


def list_offered_expiries(client: ClientSnapshot, requested_at: datetime) -> tuple[ConsentExpiry, ...]:
    """Return the expiries that the user can choose for a consent that was requested at this time."""
    return offered_expiries(requested_at, clock.now(), max_consent_seconds(client.organization.settings))


def store_consent(
    actor: Actor,
    client: ClientSnapshot,
    user_id: UUID,
    scopes: tuple[str, ...],
    ends_at: datetime | None = None,
    *,
    requested: tuple[str, ...] = (),
) -> datetime | None:
    """Add the scopes to the user's consent, until ``ends_at`` or as long as the organization allows.

    Scopes that were allowed before for a shorter time expire as they would have.
    ``requested`` scopes that are not among ``scopes`` count as declined: they are removed from the consent, and grants
    that contain them are revoked (CO-3). Existing grants and tokens do not outlive the consent. Part of the current
    transaction. Return the expiry. Audit: ``consent.given``.
    """
    end = consent_expiry(clock.now(), ends_at, max_consent_seconds(client.organization.settings))
    declined = tuple(scope for scope in requested if scope not in scopes)
    before = _add_scopes(client, user_id, scopes, declined, end)
    if before is None:
        # Another tab may be faster. This adds to what it allowed.
        _insert(client, user_id)
        before = _add_scopes(client, user_id, scopes, declined, end) or ()
    ended = revoke_access_with_scopes(actor, user_id, client.id, declined) if declined else 0
    if end is not None:
        _limit_expiry(client, user_id, end)
    audit.record(
        actor,
        "consent.given",
        "client",
        client.client_id,
        before={"scopes": list(before)},
        after={
            "scopes": _merge_scopes(client, before, scopes, declined).split(),
            "expires_at": end.isoformat() if end is not None else None,
            **({"declined": list(declined)} if declined else {}),
            **({"ended_grants": ended} if ended else {}),
        },
    )
    return end


@transaction
def delete_consents_of_user(organization_id: str, user_id: UUID) -> int:
    """Delete the user's consents, together with the change that revokes the grants; return their number."""
    return count_changed(
        delete(Consent).where(Consent.organization_id == organization_id, Consent.user_id == user_id)
    )


def _add_scopes(
    client: ClientSnapshot,
    user_id: UUID,
    scopes: tuple[str, ...],
    declined: tuple[str, ...],
    end: datetime | None,
) -> tuple[str, ...] | None:
    """Add the scopes to an existing consent; return the previous scopes, or None if there is no consent.

    The previous scopes are dropped if it expired or the app has changed since.
    """
    now = clock.now()
    own = (
        Consent.organization_id == client.organization.id,
        Consent.user_id == user_id,
        Consent.client_id == client.id,
    )
    row = db.session.execute(_SELECT_CONSENT.where(*own).with_for_update()).first()
    if row is None:
        return None
    state = _state_of(client, row)
    before = state.scopes
    declined = (*(scope for scope in state.declined if scope not in (*scopes, *declined)), *declined)
    merged = _merge_scopes(client, before, scopes, declined)
    expiries = _expiries_before(state, set(merged.split()).difference(scopes), end)
    count_changed(
        update(Consent)
        .where(*own)
        .values(
            scope=merged,
            declined=" ".join(declined) or None,
            updated_at=now,
            expires_at=end,
            last_used_at=now,
            shown=_shown_of(client) | ({EXPIRIES: expiries} if expiries else {}),
        )
    )
    return before


def _expiries_before(state: ConsentState, scopes: Collection[str], end: datetime | None) -> dict[str, str]:
    """Return when those of the scopes expire that were allowed for a shorter time than until ``end``."""
    expiries = {scope: state.find_expiry((scope,)) for scope in scopes}
    return {
        scope: at.isoformat()
        for scope, at in expiries.items()
        if at is not None and (end is None or at < end)
    }


def _insert(client: ClientSnapshot, user_id: UUID) -> None:
    """Add a consent that covers nothing yet, unless there is one."""
    now = clock.now()
    key = {"organization_id": client.organization.id, "user_id": user_id, "client_id": client.id}
    new = {"id": new_id(), "scope": "", "created_at": now, "updated_at": now, "shown": _shown_of(client)}
    insert_or_update(Consent, key, {}, **new)


def _limit_expiry(client: ClientSnapshot, user_id: UUID, end: datetime) -> None:
    """Limit grants, access tokens, and unredeemed codes to the expiry of the consent."""
    here = client.organization.id
    of_user = {"organization_id": here, "user_id": user_id, "client_id": client.id}
    grants = db.session.scalars(
        select(Grant.id).filter_by(**of_user, revoked_at=None).where(Grant.expires_at > clock.now())
    ).all()
    changes = [
        update(model)
        .filter_by(**of_user, used_at=None)
        .where(or_(model.grant_ends_at.is_(None), model.grant_ends_at > end))
        .values(grant_ends_at=end)
        for model in (AuthorizationCode, DeviceCode)
    ]
    if grants:
        changes += [
            update(model)
            .where(model.organization_id == here, held_by.in_(grants), model.expires_at > end)
            .values(expires_at=end)
            for model, held_by in ((Grant, Grant.id), (AccessToken, AccessToken.grant_id))
        ]
    for change in changes:
        count_changed(change)


def _current_declined(row: Any, shown: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the declined scopes, or none if the client's scopes or optional scopes have changed since."""
    is_same = (row.shown or {}).get(SCOPES) == shown[SCOPES]
    return tuple((row.declined or "").split()) if is_same else ()


def _shown_of(client: ClientSnapshot) -> dict[str, Any]:
    return consent_snapshot(client.name, client.trust, client.document)


def _merge_scopes(
    client: ClientSnapshot, before: tuple[str, ...], scopes: tuple[str, ...], declined: tuple[str, ...]
) -> str:
    # Scopes that the client no longer has are dropped, which also bounds the length of the list.
    current = [scope for scope in restrict_scopes(before, client.document["scopes"]) if scope not in declined]
    return " ".join(dict.fromkeys((*current, *scopes)))
