"""Verifying the second step of a sign-in: a code of the authenticator app, or a recovery code."""

from __future__ import annotations

from msgspec import Struct

from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import hold_user
from app.operations.mail.notices import notify_user
from app.operations.sign_in import pending_sign_ins, second_factors
from app.operations.sign_in.pending_sign_ins import (
    PendingSignInRecord,
    delete_similar_pending_sign_ins,
    get_pending_sign_in,
)
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, complete_second_factor
from app.operations.store import audit
from app.operations.store.transactions import transaction
from app.rules.actor import Actor

OTP_AMR = "otp"


class InvalidCode(Struct, frozen=True):
    """The code was rejected. The next attempt is allowed after ``retry_after`` seconds.

    ``has_ended`` means that a new sign-in is needed, ``is_capped`` that waiting does not help, ``was_used`` that the
    code was right but works only once.
    """

    attempts_left: int
    retry_after: int = 0
    has_ended: bool = False
    is_capped: bool = False
    was_used: bool = False


@transaction
def verify_code(
    actor: Actor, organization: OrganizationSnapshot, token: str, code: str, browser: Browser
) -> SignedIn | SecondStepRequired | InvalidCode:
    """Complete the second step of a sign-in with an authenticator code or a recovery code, each valid once.

    Incorrect codes are counted, and the fifth in a row ends the pending sign-in (MF-3). Recovery codes are
    accepted during a wait, because they cannot be guessed and someone who knows the password must not lock
    the owner out. ``actor`` is the anonymous actor. Raises SignInEnded. Audit: as ``complete_second_factor``,
    ``recovery_code.used``, or ``second_factor.failed``.
    """
    pending = get_pending_sign_in(organization, token, browser.id)
    hold_user(organization.id, pending.user_id)
    if second_factors.use_recovery_code(organization.id, pending.user_id, code):
        _record_recovery_code_use(actor, organization, pending)
        return complete_second_factor(actor, organization, pending, (OTP_AMR,), browser)
    attempt = pending_sign_ins.claim_code_attempt(organization, pending)
    if attempt.retry_after:
        return InvalidCode(0, attempt.retry_after, is_capped=attempt.is_capped)
    if second_factors.use_authenticator_code(organization.id, pending.user_id, code):
        return complete_second_factor(actor, organization, pending, (OTP_AMR,), browser)
    audit.record_user_event(actor, "second_factor.failed", pending.user_id)
    if attempt.attempts_left:
        was_used = second_factors.is_current_code(organization.id, pending.user_id, code)
        return InvalidCode(attempt.attempts_left, was_used=was_used)
    delete_similar_pending_sign_ins(pending)
    return InvalidCode(0, attempt.next_wait, True)


def _record_recovery_code_use(
    actor: Actor, organization: OrganizationSnapshot, pending: PendingSignInRecord
) -> None:
    left = second_factors.count_recovery_codes(organization.id, pending.user_id)
    audit.record_user_event(actor, "recovery_code.used", pending.user_id, after={"left": left})
    notify_user(actor, pending.user_id, "recovery_code_used")
