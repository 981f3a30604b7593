"""Signing in with a password, and changing it.

The hash is verified between two transactions, never inside one: it takes 18 ms and 19 MiB (scale.md rule 7).
Known and unknown addresses do the same work and get the same answer, so that nobody learns who has an account
(EN-1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import and_, select, update

from app.extensions import db
from app.models.session import Session
from app.models.user import ACTIVE, User
from app.operations import audit, clock
from app.operations.directory import OrganizationView, organization_by_id
from app.operations.people import attempts
from app.operations.people.attempts import Limit, bucket_of
from app.operations.people.passwords import verify_password
from app.operations.people.sessions import start_session
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import public_id
from app.rules.people.emails import canonical_email
from app.rules.people.lockout import Lockout
from app.rules.people.networks import network_of

MOST_PER_NETWORK = 100
"""Failures from one network, whatever the accounts, before it waits: whoever tries one password on many of them."""
MOST_PER_ACCOUNT = 100
"""Failures at one account, whatever the networks, before those wait that it never signed in from."""

Reason = Literal["mismatch", "wait", "disabled", "suspended", "password_off"]


@dataclass(frozen=True, slots=True)
class SignedIn:
    """``token`` is the cookie's value: the only place where it stands in clear."""

    token: str
    session_id: UUID
    user_id: UUID


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
) -> SignedIn | Refused:
    """A new session of the user whose password it is, or the reason why not; nothing is raised for a wrong one.

    ``replaces`` is this browser's previous cookie value for the organization, dead after a success. Failures are
    counted per account and network, per network, and per account; a success starts the first count again. Raises
    Unavailable when too many hash, or the hash has to wait for over two seconds. Audit: ``session.started`` or
    ``sign_in.failed``, of which beyond a bound only a sample is kept.
    """
    organization = organization_by_id(organization_id)
    if not organization.is_active:
        return Refused("suspended")
    if not organization.settings["authentication"]["password"]["enabled"]:
        return Refused("password_off")
    canonical = canonical_email(email)
    limits = _limits(organization, canonical or email[:400].casefold(), network_of(address))
    claim = attempts.claim_attempt(organization.id, *limits)
    if claim.blocked == limits[-1:] and _has_signed_in_from(organization.id, canonical or "", address):
        claim = attempts.claim_attempt(organization.id, *limits[:-1])
    if claim.wait:
        return Refused("wait", retry_after=claim.wait)
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
        signed_in = _start(
            actor,
            organization,
            account,
            renewed_hash,
            spent=claim.attempts,
            forgiven=limits[0].bucket,
            user_agent=user_agent,
            replaces=replaces,
        )
        if signed_in is not None:
            return signed_in
    # Whoever knows the password may know that the account is disabled; nobody else may.
    reason: Reason = "disabled" if account is not None and is_right and not account.is_active else "mismatch"
    # All up to the bound, then the 1st, 2nd, 4th, 8th … beyond it: an attack must not fill the audit log.
    if claim.surplus <= 0 or claim.surplus.bit_count() == 1:
        _record_failure(actor, canonical, reason)
    wait = Lockout.of(organization.settings).delay.total_seconds() if claim.tries_left == 0 else 0
    return Refused(reason, tries_left=claim.tries_left, retry_after=int(wait))


def _limits(organization: OrganizationView, email: str, network: str) -> tuple[Limit, Limit, Limit]:
    lockout = Lockout.of(organization.settings)
    return (
        Limit(bucket_of("sign_in", email, network), lockout),
        Limit(bucket_of("sign_in network", network), lockout.from_failure(MOST_PER_NETWORK)),
        Limit(bucket_of("sign_in account", email), lockout.from_failure(MOST_PER_ACCOUNT)),
    )


@read
def _has_signed_in_from(organization_id: str, canonical: str, address: str | None) -> bool:
    """Whether the account has a session, an ended one too, that began in the network of the address."""
    known = db.session.scalars(
        select(Session.address)
        .join(User, and_(User.organization_id == Session.organization_id, User.id == Session.user_id))
        .where(User.organization_id == organization_id, User.email_canonical == canonical)
        .order_by(Session.id.desc())
        .limit(50)
    )
    return any(network_of(one) == network_of(address) for one in known)


@read
def _find_account(organization_id: str, canonical: str) -> _Account | None:
    row = db.session.execute(
        select(User.id, User.password_hash, User.status).where(
            User.organization_id == organization_id, User.email_canonical == canonical
        )
    ).first()
    return None if row is None else _Account(row.id, row.password_hash, row.status == ACTIVE)


@transaction
def _start(
    actor: Actor,
    organization: OrganizationView,
    account: _Account,
    renewed_hash: str | None,
    *,
    spent: tuple[UUID, ...],
    forgiven: bytes,
    user_agent: str,
    replaces: str | None,
) -> SignedIn | None:
    """The session, unless the password was changed or the user disabled since the hash was read."""
    values: dict[str, Any] = {"last_sign_in_at": clock.now()}
    if renewed_hash is not None:
        values |= {"password_hash": renewed_hash, "password_scheme": None}
    unchanged = count_changed(
        update(User)
        .where(
            User.organization_id == organization.id,
            User.id == account.id,
            User.status == ACTIVE,
            User.password_hash == account.password_hash,
        )
        .values(**values)
    )
    if not unchanged:
        return None
    attempts.take_back(organization.id, spent)
    attempts.forgive(organization.id, forgiven)
    token, session_id = start_session(
        organization, account.id, address=actor.address, user_agent=user_agent, replaces=replaces
    )
    email = db.session.scalar(
        select(User.email).where(User.organization_id == organization.id, User.id == account.id)
    )
    who = Actor(
        "user",
        organization.id,
        organization.id,
        user_id=account.id,
        session_id=session_id,
        label=email or "",
        address=actor.address,
        request_id=actor.request_id,
    )
    audit.record(who, "session.started", target_type="session", target_id=public_id("ses", session_id))
    return SignedIn(token, session_id, account.id)


@transaction
def _record_failure(actor: Actor, canonical: str | None, reason: Reason) -> None:
    # Only what has the form of an address is kept: people type passwords into the wrong field.
    audit.record(actor, "sign_in.failed", target_type="user", after={"email": canonical, "reason": reason})
