"""Signing in with a password: the first proof, after which ``second_factors.sign_in_ends`` goes on.

The hash is verified between two transactions, never inside one: it takes 18 ms and 19 MiB (scale.md rule 7).
Known and unknown addresses do the same work and get the same answer, so that nobody learns who has an account
(EN-1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.user import ACTIVE, User
from app.operations import audit
from app.operations.directory import OrganizationView, organization_by_id
from app.operations.people import attempts
from app.operations.people.passwords import verify_password
from app.operations.second_factors.sign_in_ends import Browser, SecondStep, SignedIn, complete_first_proof
from app.operations.sign_in_safety import limits
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import public_id
from app.rules.people.emails import canonical_email
from app.rules.people.lockout import Lockout

__all__ = ["Reason", "Refused", "SecondStep", "SignedIn", "sign_in"]

Reason = Literal["mismatch", "wait", "capped", "disabled", "suspended", "password_off"]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nobody was signed in. ``tries_left`` says nothing about whether the account exists."""

    reason: Reason
    tries_left: int = 0
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class _Account:
    id: UUID
    password_hash: str | None
    is_active: bool


def sign_in(
    organization_id: str,
    email: str,
    password: str,
    *,
    address: str | None = None,
    user_agent: str = "",
    request_id: str | None = None,
    replaces: str | None = None,
    browser_id: str = "",
    known: str = "",
) -> SignedIn | SecondStep | Refused:
    """A new session of the user whose password it is, the step that it waits for, or the reason why not.

    Nothing is raised for a wrong password. ``replaces``, ``browser_id`` and ``known`` are as in ``Browser``. Failures
    are counted as ``sign_in_safety.limits`` says; a right password is none. Raises Unavailable when too many hash, or
    the hash has to wait for over two seconds. Audit: that of ``complete_first_proof``, or ``sign_in.failed``, of which
    beyond a bound only a sample is kept.
    """
    organization = organization_by_id(organization_id)
    if not organization.is_active:
        return Refused("suspended")
    if not organization.settings["authentication"]["password"]["enabled"]:
        return Refused("password_off")
    canonical = canonical_email(email)
    guess = limits.claim_guess(organization, email, address=address, known=known)
    claim = guess.claim
    if claim.wait:
        return Refused("capped" if guess.is_capped else "wait", retry_after=claim.wait)
    account = _find_account(organization.id, canonical or "")
    try:
        is_right, renewed_hash = verify_password(
            account.password_hash if account else None,
            password,
            organization_id=organization.id,
            address=address,
        )
    except Unavailable:
        attempts.take_back(organization.id, claim.attempts)
        raise
    actor = Actor.anonymous(organization.id, address, request_id)
    if account is not None and is_right and account.is_active:
        accepted = _accept(
            actor,
            organization,
            account,
            renewed_hash,
            spent=claim.attempts,
            browser=Browser(browser_id, user_agent, replaces, known),
        )
        if accepted is not None:
            return accepted
    # Whoever knows the password may know that the account is disabled; nobody else may.
    reason: Reason = "disabled" if account is not None and is_right and not account.is_active else "mismatch"
    # All up to the bound, then the 1st, 2nd, 4th, 8th … beyond it: an attack must not fill the audit log.
    if claim.surplus <= 0 or claim.surplus.bit_count() == 1:
        _record_failure(actor, canonical, reason, account.id if account is not None else None)
    wait = Lockout.of(organization.settings).delay.total_seconds() if claim.tries_left == 0 else 0
    return Refused(reason, tries_left=claim.tries_left, retry_after=int(wait))


@read
def _find_account(organization_id: str, canonical: str) -> _Account | None:
    row = db.session.execute(
        select(User.id, User.password_hash, User.status).where(
            User.organization_id == organization_id, User.email_canonical == canonical
        )
    ).first()
    return None if row is None else _Account(row.id, row.password_hash, row.status == ACTIVE)


@transaction
def _accept(
    actor: Actor,
    organization: OrganizationView,
    account: _Account,
    renewed_hash: str | None,
    *,
    spent: tuple[UUID, ...],
    browser: Browser,
) -> SignedIn | SecondStep | None:
    """The password counts, unless it was changed or the user disabled since the hash was read."""
    unchanged = count_changed(
        update(User)
        .where(
            User.organization_id == organization.id,
            User.id == account.id,
            User.status == ACTIVE,
            User.password_hash == account.password_hash,
        )
        .values(
            {"password_hash": renewed_hash, "password_scheme": None}
            if renewed_hash
            else {"password_hash": account.password_hash}
        )
    )
    if not unchanged:
        return None
    attempts.take_back(organization.id, spent)
    return complete_first_proof(actor, organization, account.id, amr=("pwd",), browser=browser)


@transaction
def _record_failure(actor: Actor, canonical: str | None, reason: Reason, user_id: UUID | None) -> None:
    # Only what has the form of an address is kept: people type passwords into the wrong field.
    after = {"email": canonical, "reason": reason}
    # Whose account it was meant for sees it among the activity.
    target = None if user_id is None else public_id("usr", user_id)
    audit.record(actor, "sign_in.failed", target_type="user", target_id=target, after=after)
