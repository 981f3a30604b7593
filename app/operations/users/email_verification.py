"""The first proof of an address: what was set up in an account before anybody proved whose mailbox it names.

Whoever makes an account may type somebody else's address. Its owner comes by a mailed link, and must not share the
account with the sign-ins, known browsers, second factors and consents of whoever was there before. An account that an
administrator made, invited somebody to or gave a role was vouched for: what is in it stays, as a reset takes no second
factor from its owner (RP-3, MF-6).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import update

from app.models.user import User
from app.operations.authorization.consents import forget_consents_of_user
from app.operations.grants.revocation import revoke_grants_elsewhere
from app.operations.mail.sealed_payloads import seal_payload
from app.operations.sign_in import known_browsers
from app.operations.sign_in.second_factors import NO_FACTORS, FactorCount, count_factors
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store import audit, outbox
from app.operations.store.transactions import count_changed, transaction
from app.operations.users.factor_resets import remove_all_factors
from app.rules.actor import Actor
from app.rules.identifiers import public_id
from app.rules.sign_in.second_factors import used_second_factor

REGISTRATION_MESSAGE = "registration"


@transaction
def enqueue_registration(
    organization_id: str,
    *,
    email: str,
    name: str,
    password_hash: str,
    address: str | None,
    request_id: str | None,
) -> None:
    """The question waits for the dispatcher, sealed."""
    values = {
        "email": email,
        "name": name,
        "password_hash": password_hash,
        "address": address,
        "request_id": request_id,
    }
    outbox.enqueue(
        organization_id,
        REGISTRATION_MESSAGE,
        seal_payload(organization_id, REGISTRATION_MESSAGE, values),
        receiver="registration",
    )


@dataclass(frozen=True, slots=True)
class RevokedState:
    """What was set up before the first proof, and is no more."""

    factors: FactorCount = NO_FACTORS
    consents: int = 0


@transaction
def revoke_unverified_state(actor: Actor, user_id: UUID) -> RevokedState:
    """No second factor and no consent from before the first proof counts any more.

    Part of the unit in which a mailed link proved the address to somebody who is not signed in, and which ends the
    sign-ins, grants and known browsers itself. Nothing changes in an account that was vouched for or proven before.
    Audit: ``second_factors.ended`` where there were some.
    """
    if not _is_first(actor.organization_id, user_id):
        return RevokedState()
    consents = forget_consents_of_user(actor.organization_id, user_id)
    return RevokedState(_end_factors(actor, user_id), consents)


@transaction
def revoke_unverified_state_elsewhere(actor: Actor, user_id: UUID, *, known: str) -> dict[str, int]:
    """How much from before the first proof has ended, which the actor's own sign-in gave; nothing where nothing was.

    What apps were allowed in another sign-in ends too. That of the actor and the browser of ``known``, the cookie of
    known browsers, stay; so do the second factors where it rests on one, for then it is the one that set them up.
    Consents are asked for anew. Part of the unit that proved the address, whose event has the counts. Audit:
    ``second_factors.ended``.
    """
    if not _is_first(actor.organization_id, user_id):
        return {}
    consents = forget_consents_of_user(actor.organization_id, user_id)
    factors = NO_FACTORS if used_second_factor(actor.amr) else _end_factors(actor, user_id)
    browsers = known_browsers.forget_browsers_of_user(actor.organization_id, user_id, keep=known)
    sessions = end_sessions_of_user(actor.organization_id, user_id, keep=actor.session_id)
    grants = revoke_grants_elsewhere(actor, user_id, reason="email_verified")
    if not (factors or browsers or sessions or grants):
        return {}
    return {
        "ended_sessions": sessions,
        "ended_grants": grants,
        "ended_consents": consents,
        "forgotten_browsers": browsers,
    }


def _is_first(organization_id: str, user_id: UUID) -> bool:
    """Whether this proof is the first of an account that nobody vouched for: the row count decides."""
    first = count_changed(
        update(User)
        .where(User.organization_id == organization_id, User.id == user_id, User.made_unproven.is_(True))
        .values(made_unproven=False)
    )
    return first == 1


def _end_factors(actor: Actor, user_id: UUID) -> FactorCount:
    had = count_factors(actor.organization_id, user_id)
    methods = remove_all_factors(actor.organization_id, user_id)
    if had:
        audit.record(
            actor,
            "second_factors.ended",
            target_type="user",
            target_id=public_id("usr", user_id),
            before={"methods": list(methods)},
        )
    return had
