"""Consents: what users allowed clients, remembered until withdrawn or until the end that they chose."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from app.database_errors import is_duplicate_key
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.grant import AuthorizationCode, Consent, Grant
from app.models.token import AccessToken, DeviceCode
from app.operations.directory.lookups import ClientSnapshot
from app.operations.grants import grants
from app.operations.grants.grants import grant_issued_after_cutoffs
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.authorization.claims_parameter import scopes_of
from app.rules.authorization.consents import (
    SCOPES,
    End,
    as_shown,
    changes_since,
    end_of_consent,
    ends_offered,
    longest_life,
)
from app.rules.identifiers import new_id
from app.rules.scopes import restrict_scopes


def end_access(actor: Actor, user_id: UUID | None, client_id: UUID) -> tuple[int, list[str]]:
    """Nothing that the client holds for the user counts any more; part of the transaction under way.

    Returns how many grants ended, and the scopes that they had. The audit event is the caller's.
    """
    living = _living(actor, user_id, client_id)
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
    ended = sum(grants.revoke_grant_by_id(actor, grant.id, reason="consent_withdrawn") for grant in living)
    return ended, list(dict.fromkeys(scope for grant in living for scope in grant.scope.split()))


def end_access_with(actor: Actor, user_id: UUID, client_id: UUID, scopes: Collection[str]) -> int:
    """The same for what has one of the scopes, or claims that only one of them releases; the rest goes on.

    A grant cannot be narrowed: tokens that it gave say what they are for. The app comes again for what is left.
    """
    now = clock.now()
    living = _living(actor, user_id, client_id)
    for model in (AuthorizationCode, DeviceCode):
        claims = (AuthorizationCode.claims,) if model is AuthorizationCode else ()
        waiting = db.session.execute(
            select(model.id, model.scope, *claims).where(
                model.organization_id == actor.organization_id,
                model.client_id == client_id,
                model.user_id == user_id,
                model.used_at.is_(None),
                model.expires_at > now,
            )
        ).all()
        over = [row.id for row in waiting if _holds(row.scope, getattr(row, "claims", None), scopes)]
        if over:
            db.session.execute(
                update(model)
                .where(
                    model.organization_id == actor.organization_id,
                    model.id.in_(over),
                    model.used_at.is_(None),
                )
                .values(expires_at=now)
                .execution_options(synchronize_session=False)
            )
    return sum(
        grants.revoke_grant_by_id(actor, grant.id, reason="scope_withdrawn")
        for grant in living
        if _holds(grant.scope, grant.claims, scopes)
    )


def _living(actor: Actor, user_id: UUID | None, client_id: UUID) -> Sequence[Any]:
    # Also those that refresh no more: an access token of theirs may be alive. No more than grants.MAX_ACTIVE_GRANTS.
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


def _holds(scope: str, claims: Mapping[str, Any] | None, scopes: Collection[str]) -> bool:
    return not {*scope.split(), *scopes_of(claims)}.isdisjoint(scopes)


_STANDING = CompiledQuery(
    select(Consent.scope, Consent.expires_at, Consent.shown, Consent.updated_at, Consent.declined).where(
        Consent.organization_id == bindparam("organization_id"),
        Consent.user_id == bindparam("user_id"),
        Consent.client_id == bindparam("client_id"),
    )
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a user's consent for a client says now.

    ``scopes`` are those it covers: none when there is none, when it has ended, and when the app has changed since.
    Then ``changes`` names what differs from what was ``shown`` on the day ``given_at``. ``declined`` are optional
    scopes that the person left out: they are not asked again until the app's scopes are others.
    """

    scopes: tuple[str, ...] = ()
    ends_at: datetime | None = None
    changes: tuple[str, ...] = ()
    shown: Mapping[str, Any] | None = None
    given_at: datetime | None = None
    declined: tuple[str, ...] = ()


NOTHING_STANDS = Standing()


def standing_consent(client: ClientSnapshot, user_id: UUID) -> Standing:
    """What the user's consent for the client says now."""
    row = _STANDING.first(organization_id=client.organization.id, user_id=user_id, client_id=client.id)
    if row is None:
        return NOTHING_STANDS
    ends_at = end_of_consent(row.updated_at, row.expires_at, longest_life(client.organization.settings))
    if ends_at is not None and ends_at <= clock.now():
        return NOTHING_STANDS
    shown = _shown_of(client)
    changes = changes_since(row.shown, shown)
    declined = _still_declined(row, shown)
    standing = Standing(tuple(row.scope.split()), ends_at, changes, row.shown, row.updated_at, declined)
    return replace(standing, scopes=(), ends_at=None, declined=()) if changes else standing


def offered_ends(client: ClientSnapshot, asked_at: datetime) -> tuple[End, ...]:
    """The ends that a person may choose for a consent that the client asked for then."""
    return ends_offered(asked_at, clock.now(), longest_life(client.organization.settings))


def remember(
    actor: Actor,
    client: ClientSnapshot,
    user_id: UUID,
    scopes: tuple[str, ...],
    ends_at: datetime | None = None,
    *,
    asked: tuple[str, ...] = (),
) -> datetime | None:
    """The user's consent covers the scopes too, until ``ends_at`` or as long as the organization allows.

    Of the scopes that were ``asked`` for it does not cover the others any more, and they are not asked for again; what
    the client holds of these ends now, whatever page once gave it, and it comes again for the rest (CO-3).
    Part of the transaction under way. What the client holds already ends by then, too: nothing outlives the consent.
    Returns the end. Audit: ``consent.given``.
    """
    end = _end(client, clock.now(), ends_at)
    declined = tuple(scope for scope in asked if scope not in scopes)
    before = _widen(client, user_id, scopes, declined, end)
    if before is None:
        try:
            with db.session.begin_nested():
                _insert(client, user_id, scopes, declined, end)
            before = ()
        except IntegrityError as error:
            if not is_duplicate_key(error):
                raise
            # Another tab was faster; what it allowed stands, and this is allowed beside it.
            before = _widen(client, user_id, scopes, declined, end) or ()
    ended = end_access_with(actor, user_id, client.id, declined) if declined else 0
    if end is not None:
        _shorten(client, user_id, end)
    audit.record(
        actor,
        "consent.given",
        target_type="client",
        target_id=client.client_id,
        before={"scopes": list(before)},
        after={
            "scopes": _together(client, before, scopes, declined).split(),
            "expires_at": end.isoformat() if end is not None else None,
            **({"declined": list(declined)} if declined else {}),
            **({"ended_grants": ended} if ended else {}),
        },
    )
    return end


@transaction
def forget_consents_of_user(organization_id: str, user_id: UUID) -> int:
    """Every app asks the user anew; returns how many had been allowed. Part of the change that ends the grants too."""
    return count_changed(
        delete(Consent).where(Consent.organization_id == organization_id, Consent.user_id == user_id)
    )


def _widen(
    client: ClientSnapshot,
    user_id: UUID,
    scopes: tuple[str, ...],
    declined: tuple[str, ...],
    end: datetime | None,
) -> tuple[str, ...] | None:
    """The consent that stands covers the scopes too; what it covered before, or None when there is none.

    What it covered before the app changed is forgotten: that was allowed to another.
    """
    now = clock.now()
    own = (
        Consent.organization_id == client.organization.id,
        Consent.user_id == user_id,
        Consent.client_id == client.id,
    )
    row = db.session.execute(
        select(Consent.scope, Consent.expires_at, Consent.shown, Consent.updated_at, Consent.declined)
        .where(*own)
        .with_for_update()
    ).first()
    if row is None:
        return None
    shown = _shown_of(client)
    ended_at = end_of_consent(row.updated_at, row.expires_at, longest_life(client.organization.settings))
    is_over = (ended_at is not None and ended_at <= now) or changes_since(row.shown, shown)
    before = () if is_over else tuple(row.scope.split())
    standing = () if is_over else _still_declined(row, shown)
    declined = (*(scope for scope in standing if scope not in (*scopes, *declined)), *declined)
    db.session.execute(
        update(Consent)
        .where(*own)
        .values(
            scope=_together(client, before, scopes, declined),
            declined=" ".join(declined) or None,
            updated_at=now,
            expires_at=end,
            last_used_at=now,
            shown=shown,
        )
        .execution_options(synchronize_session=False)
    )
    return before


def _insert(
    client: ClientSnapshot,
    user_id: UUID,
    scopes: tuple[str, ...],
    declined: tuple[str, ...],
    end: datetime | None,
) -> None:
    now = clock.now()
    db.session.execute(
        insert(Consent).values(
            organization_id=client.organization.id,
            id=new_id(),
            user_id=user_id,
            client_id=client.id,
            scope=" ".join(scopes),
            declined=" ".join(declined) or None,
            created_at=now,
            updated_at=now,
            expires_at=end,
            last_used_at=now,
            shown=_shown_of(client),
        )
    )


def _shorten(client: ClientSnapshot, user_id: UUID, end: datetime) -> None:
    """Grants with their access tokens, and codes that were not brought yet: nothing of them outlives the end."""
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
        db.session.execute(change.execution_options(synchronize_session=False))


def _end(client: ClientSnapshot, now: datetime, chosen: datetime | None) -> datetime | None:
    return end_of_consent(now, chosen, longest_life(client.organization.settings))


def _still_declined(row: Any, shown: Mapping[str, Any]) -> tuple[str, ...]:
    """What was left out of the consent; nothing once the client has other scopes, or leaves others to the person."""
    is_same = (row.shown or {}).get(SCOPES) == shown[SCOPES]
    return tuple((row.declined or "").split()) if is_same else ()


def _shown_of(client: ClientSnapshot) -> dict[str, Any]:
    return as_shown(client.name, client.trust, client.document)


def _together(
    client: ClientSnapshot, before: tuple[str, ...], scopes: tuple[str, ...], declined: tuple[str, ...]
) -> str:
    # What the client may no longer ask for is forgotten: the list stays within what a client can hold.
    kept = [scope for scope in restrict_scopes(before, client.document["scopes"]) if scope not in declined]
    return " ".join(dict.fromkeys((*kept, *scopes)))
