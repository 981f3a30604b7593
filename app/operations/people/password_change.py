"""Changing one's own password."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, update

from app.extensions import db
from app.models.user import ACTIVE, User
from app.operations import audit, clock
from app.operations.directory import organization_by_id
from app.operations.mail.notices import notify_user
from app.operations.people import attempts
from app.operations.people.passwords import new_password_hash, verify_password
from app.operations.people.sessions import end_sessions_of_user, renew_session
from app.operations.sign_in_safety import known_browsers, limits
from app.operations.tokens import revocation
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, TooManyRequests, Unavailable
from app.rules.identifiers import public_id
from app.rules.languages.sentences import sentence
from app.rules.people.emails import canonical_email


@dataclass(frozen=True, slots=True)
class ChangedPassword:
    """``token`` is the new value of this browser's cookie; ``ended_sessions`` counts the sign-ins elsewhere."""

    token: str | None
    ended_sessions: int


def change_password(actor: Actor, current: str, new: str, *, known: str = "") -> ChangedPassword:
    """The actor's own password is the new one; other sign-ins and what apps could refresh have ended (SS-6).

    No browser but that of ``known``, the cookie of known browsers, is known as theirs. The person is told by mail.
    Needs the current password (PW-4), whose wrong guesses are counted with those of sign-ins, so that a stolen sign-in
    gives nobody more of them, wherever they come from (LK-1). Raises InvalidInput naming
    ``current_password`` or ``new_password``, TooManyRequests, and Unavailable when hashing has to wait. Audit:
    ``user.password_changed``.
    """
    if actor.user_id is None or actor.organization_id != actor.home_organization_id:
        raise Forbidden("Only a person has a password.")
    organization = organization_by_id(actor.organization_id)
    email, name, stored_hash = _read(actor)
    guess = limits.claim_guess(organization, email, address=actor.address, known=known)
    claim = guess.claim
    if claim.wait:
        raise _too_many(guess)
    place = {"organization_id": organization.id, "address": actor.address}
    try:
        is_right, _ = verify_password(stored_hash, current, **place)
    except Unavailable:
        attempts.take_back(organization.id, claim.attempts)
        raise
    if not is_right:
        raise InvalidInput(
            "This is not your current password.", field="current_password", code="wrong_password"
        )
    limits.forgive(organization.id, canonical_email(email) or "", address=actor.address, known=known)
    if new == current:
        raise InvalidInput(
            "This is your current password. Choose another.", field="new_password", code="unchanged"
        )
    personal = (email, name, organization.name, organization.slug)
    new_hash = new_password_hash(organization.settings, new, personal=personal, field="new_password", **place)
    return _store(actor, stored_hash, new_hash, known)


def _too_many(guess: limits.Guess) -> TooManyRequests:
    wait = guess.claim.wait
    if guess.is_capped:
        words = sentence(
            "Too many wrong passwords from browsers that are not known here. Change your password in a browser where "
            "you have signed in before, or ask for a link to choose a new one."
        )
    else:
        words = sentence("Too many wrong passwords. Try again in %(wait)s seconds.", wait=wait)
    return TooManyRequests(words, retry_after=wait)


@read
def _read(actor: Actor) -> tuple[str, str, str | None]:
    row = db.session.execute(
        select(User.email, User.name, User.password_hash).where(
            User.organization_id == actor.organization_id, User.id == actor.user_id, User.status == ACTIVE
        )
    ).first()
    if row is None:
        raise NotFound("There is no such user.")
    return row.email, row.name, row.password_hash


@transaction
def _store(actor: Actor, old_hash: str | None, new_hash: str, known: str) -> ChangedPassword:
    user_id = actor.user_id
    if user_id is None:
        raise Forbidden("Only a person has a password.")
    now = clock.now()
    changed = count_changed(
        update(User)
        .where(
            User.organization_id == actor.organization_id, User.id == user_id, User.password_hash == old_hash
        )
        .values(
            password_hash=new_hash,
            password_scheme=None,
            password_changed_at=now,
            updated_at=now,
            version=User.version + 1,
        )
    )
    if not changed:
        raise Conflict("Your password was changed in another window just now.")
    ended = end_sessions_of_user(actor.organization_id, user_id, keep=actor.session_id)
    grants = revocation.revoke_grants_of_user(actor, user_id, reason="password_changed")
    audit.record(
        actor,
        "user.password_changed",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"ended_sessions": ended, "ended_grants": grants},
    )
    known_browsers.forget_browsers_of_user(actor.organization_id, user_id, keep=known)
    notify_user(actor, user_id, "password_changed")
    return ChangedPassword(renew_session(actor), ended)
