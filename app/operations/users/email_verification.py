"""The first verification of an account's email: revoke what was set up before it.

Anyone can register an account with another person's email. When the owner of the mailbox follows a link, they
must not share the account with the sessions, known browsers, second factors and consents of the one who
registered it. Accounts that an administrator created, invited or gave a role to are trusted from the start
and keep them, as a password reset keeps second factors (RP-3, MF-6).
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from app.operations.authorization.consents import delete_consents_of_user
from app.operations.directory.users import mark_user_verified
from app.operations.grants.revocation import revoke_grants_of_other_sessions
from app.operations.sign_in import known_browsers
from app.operations.sign_in.linked_identities import unlink_all_identities
from app.operations.sign_in.second_factors import NO_FACTORS, FactorCount, count_factors
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store import audit
from app.operations.store.transactions import transaction
from app.operations.users.factor_resets import remove_all_factors
from app.rules.actor import Actor
from app.rules.sign_in.second_factors import used_second_factor


class RevokedState(Struct, frozen=True):
    """Counts of what the first verification revoked."""

    factors: FactorCount = NO_FACTORS
    consents: int = 0


@transaction
def revoke_unverified_state(actor: Actor, user_id: UUID) -> RevokedState:
    """Revoke second factors, linked identities and consents that were set up before the first verification.

    Call it in the transaction in which a mailed link verified the email for someone who is not signed in, and
    which ends sessions, grants and known browsers itself. Does nothing for accounts that are trusted or were
    verified before. Audit: ``second_factors.ended`` if there were any, ``identity.unlinked``.
    """
    if not mark_user_verified(actor.organization_id, user_id):
        return RevokedState()
    consents = delete_consents_of_user(actor.organization_id, user_id)
    unlink_all_identities(actor, user_id)
    return RevokedState(_revoke_factors(actor, user_id), consents)


@transaction
def revoke_unverified_state_elsewhere(actor: Actor, user_id: UUID, *, known_cookie: str) -> dict[str, int]:
    """Revoke what others set up before the first verification, and return the counts.

    The actor's session and the browser of ``known_cookie``, the known-browsers cookie, stay, and so does what the
    user signed in with: second factors if the session used one, and the linked identity by which it began. Consents
    are asked for again. Call it in the transaction that verified the email, whose audit event includes the counts.
    Audit: ``second_factors.ended``, ``identity.unlinked``.
    """
    if not mark_user_verified(actor.organization_id, user_id):
        return {}
    consents = delete_consents_of_user(actor.organization_id, user_id)
    identities = unlink_all_identities(actor, user_id)
    factors = NO_FACTORS if used_second_factor(actor.amr) else _revoke_factors(actor, user_id)
    browsers = known_browsers.forget_browsers_of_user(actor.organization_id, user_id, keep=known_cookie)
    sessions = end_sessions_of_user(actor.organization_id, user_id, keep=actor.session_id)
    grants = revoke_grants_of_other_sessions(actor, user_id, reason="email_verified")
    if not (factors or browsers or sessions or grants or consents or identities):
        return {}
    return {
        "ended_sessions": sessions,
        "ended_grants": grants,
        "ended_consents": consents,
        "forgotten_browsers": browsers,
    }


def _revoke_factors(actor: Actor, user_id: UUID) -> FactorCount:
    removed = count_factors(actor.organization_id, user_id)
    methods = remove_all_factors(actor.organization_id, user_id)
    if removed:
        audit.record_user_event(actor, "second_factors.ended", user_id, before={"methods": list(methods)})
    return removed
