"""The one end of every sign-in: whatever the first proof was, nothing reaches a session but through here (MF-6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.user import ACTIVE, User
from app.operations import audit, clock
from app.operations.directory import OrganizationView
from app.operations.people.sessions import start_session
from app.operations.second_factors.enrolled import verdict_of
from app.operations.second_factors.pending import PendingView, SignInEnded, begin_pending, use_pending
from app.operations.second_factors.tries import forgive_tries
from app.operations.sign_in_safety import known_browsers, limits
from app.operations.transaction import count_changed, transaction
from app.rules.actor import Actor
from app.rules.identifiers import public_id
from app.rules.people.second_factors import Demand, joined, used_second_factor


@dataclass(frozen=True, slots=True)
class SignedIn:
    """``token`` is the cookie's value: the only place where it stands in clear.

    ``known`` is the value of the cookie of known browsers from now on.
    """

    token: str
    session_id: UUID
    user_id: UUID
    known: str = ""


@dataclass(frozen=True, slots=True)
class SecondStep:
    """The sign-in waits: ``purpose`` says for what, ``token`` is what the next page carries until ``expires_at``.

    VERIFY: the person has a second factor and gives it. ENROL: one is demanded and has to be set up. OFFER: it will be
    demanded from ``until`` on, and may be set up now or later.
    """

    token: str
    expires_at: datetime
    purpose: Demand
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Browser:
    """Where the person signs in. ``replaces`` is this browser's previous cookie value for the organization, dead
    after a success; ``id`` is its anonymous id, which a sign-in that waits is bound to; ``known`` is the value of its
    cookie of known browsers.
    """

    id: str = ""
    user_agent: str = ""
    replaces: str | None = None
    known: str = ""


@transaction
def complete_first_proof(
    actor: Actor,
    organization: OrganizationView,
    user_id: UUID,
    *,
    amr: tuple[str, ...],
    browser: Browser,
) -> SignedIn | SecondStep:
    """The user is signed in, or is asked for what is missing; part of the unit that accepted the proof.

    ``actor`` is the anonymous one with address and request id; ``amr`` is what was proved (RFC 8176), with ``mfa``
    where that was two factors at once. Raises SignInEnded when the user may sign in no more. Audit:
    ``session.started`` or ``sign_in.first_proof_given``.
    """
    verdict = verdict_of(organization, user_id, amr)
    if verdict.demand is Demand.NOTHING:
        return _start(actor, organization, user_id, amr, browser)
    token, expires_at = begin_pending(organization, user_id, amr, browser.id, browser.known)
    audit.record(
        _person(actor, organization, user_id),
        "sign_in.first_proof_given",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"methods": list(amr), "needs": verdict.demand.value},
    )
    return SecondStep(token, expires_at, verdict.demand, verdict.until)


@transaction
def complete_second_proof(
    actor: Actor,
    organization: OrganizationView,
    pending: PendingView,
    proved: Iterable[str],
    browser: Browser,
) -> SignedIn | SecondStep:
    """The sign-in that waited goes on with the second factor that was ``proved``, in the caller's unit.

    What follows may be another step: a factor whose method counts no more opens the account, and another is demanded.
    Raises SignInEnded. Audit: as the first proof.
    """
    use_pending(pending)
    amr = joined(pending.amr, proved)
    return complete_first_proof(actor, organization, pending.user_id, amr=amr, browser=browser)


@transaction
def postpone_enrolment(
    actor: Actor, organization: OrganizationView, pending: PendingView, browser: Browser
) -> SignedIn | SecondStep:
    """The user is signed in without the second factor that is offered; who may not put it off is asked again.

    Raises SignInEnded. Audit: ``session.started``.
    """
    use_pending(pending)
    if verdict_of(organization, pending.user_id, pending.amr).demand is Demand.OFFER:
        return _start(actor, organization, pending.user_id, pending.amr, browser)
    return complete_first_proof(actor, organization, pending.user_id, amr=pending.amr, browser=browser)


def _start(
    actor: Actor, organization: OrganizationView, user_id: UUID, amr: tuple[str, ...], browser: Browser
) -> SignedIn:
    before = db.session.execute(
        select(User.email_canonical, User.last_sign_in_at).where(
            User.organization_id == organization.id, User.id == user_id
        )
    ).first()
    # The row first: whoever disables or deletes the user at this moment waits for it, or has done so already.
    standing = count_changed(
        update(User)
        .where(User.organization_id == organization.id, User.id == user_id, User.status == ACTIVE)
        .values(last_sign_in_at=clock.now())
    )
    if before is None or not standing:
        raise SignInEnded
    limits.forgive(organization.id, before.email_canonical, address=actor.address, known=browser.known)
    gave_factor = used_second_factor(amr)
    if gave_factor:
        forgive_tries(organization.id, user_id)
    token, session_id = start_session(
        organization,
        user_id,
        amr=" ".join(amr),
        address=actor.address,
        user_agent=browser.user_agent,
        replaces=browser.replaces,
    )
    who = replace(_person(actor, organization, user_id), session_id=session_id)
    known = known_browsers.recognise(
        who,
        user_id,
        browser.known,
        user_agent=browser.user_agent,
        has_signed_in_before=before.last_sign_in_at is not None,
        gave_factor=gave_factor,
    )
    audit.record(
        who,
        "session.started",
        target_type="session",
        target_id=public_id("ses", session_id),
        after={"methods": list(amr)},
    )
    return SignedIn(token, session_id, user_id, known)


def _person(actor: Actor, organization: OrganizationView, user_id: UUID) -> Actor:
    email = db.session.scalar(
        select(User.email).where(User.organization_id == organization.id, User.id == user_id)
    )
    return Actor(
        "user",
        organization.id,
        organization.id,
        user_id=user_id,
        label=email or "",
        address=actor.address,
        request_id=actor.request_id,
    )
