"""The second step: a code of the authenticator app, or a recovery code in its place."""

from __future__ import annotations

from dataclasses import dataclass

from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.mail.notices import notify_user
from app.operations.sign_in import pending_sign_ins, second_factors
from app.operations.sign_in import second_factors as totp
from app.operations.sign_in.pending_sign_ins import (
    PendingSignInRecord,
    delete_similar_pending_sign_ins,
    get_pending_sign_in,
)
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, complete_second_factor
from app.operations.store import audit
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.identifiers import public_id

OTP_AMR = "otp"


@dataclass(frozen=True, slots=True)
class InvalidCode:
    """The code does not count. ``retry_after`` seconds have to pass before the next, which needs a new sign-in when
    the present one ``has_ended``; ``is_capped`` says that waiting is not what helps.
    """

    attempts_left: int
    retry_after: int = 0
    has_ended: bool = False
    is_capped: bool = False


@transaction
def verify_code(
    actor: Actor, organization: OrganizationSnapshot, token: str, typed: str, browser: Browser
) -> SignedIn | SecondStepRequired | InvalidCode:
    """The sign-in that waits goes on by a code of the app or a recovery code, each of which counts once.

    Wrong ones are counted as ``tries`` says: the fifth in a row ends what waits (MF-3). A recovery code has no wait:
    nobody guesses one, and whoever knows the password shall not keep its owner from it. ``actor`` is the anonymous one.
    Raises SignInEnded. Audit: that of ``complete_second_proof``, ``recovery_code.used``, or ``second_factor.failed``.
    """
    pending = get_pending_sign_in(organization, token, browser.id)
    if second_factors.use_recovery_code(organization.id, pending.user_id, typed):
        _note_recovery(actor, organization, pending)
        return complete_second_factor(actor, organization, pending, (OTP_AMR,), browser)
    claim = pending_sign_ins.claim_code_attempt(organization, pending)
    if claim.retry_after:
        return InvalidCode(0, claim.retry_after, is_capped=claim.is_capped)
    if totp.use_authenticator_code(organization.id, pending.user_id, typed):
        return complete_second_factor(actor, organization, pending, (OTP_AMR,), browser)
    audit.record(
        actor, "second_factor.failed", target_type="user", target_id=public_id("usr", pending.user_id)
    )
    if claim.left:
        return InvalidCode(claim.left)
    delete_similar_pending_sign_ins(pending)
    return InvalidCode(0, int(organization.settings["authentication"]["lockout"]["delay_seconds"]), True)


def _note_recovery(actor: Actor, organization: OrganizationSnapshot, pending: PendingSignInRecord) -> None:
    left = second_factors.count_recovery_codes(organization.id, pending.user_id)
    audit.record(
        actor,
        "recovery_code.used",
        target_type="user",
        target_id=public_id("usr", pending.user_id),
        after={"left": left},
    )
    notify_user(actor, pending.user_id, "recovery_code_used")
