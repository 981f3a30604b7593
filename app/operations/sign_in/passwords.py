"""Password hashing within bounds: one hash per core at a time, a short queue, and never in a transaction.

Each hash takes 19 MiB and 18 ms. Without the bounds a storm of sign-ins would take every core and every thread of
the process, and the token endpoints would starve (PW-6). Of the queue no organization and no network holds more
than half, so that a storm at one does not keep the people of another out (TN-14).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update

from app.extensions import db
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import list_password_schemes
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.mail.notices import notify_user
from app.operations.sign_in import known_browsers, sign_in_limits
from app.operations.sign_in.sessions import end_sessions_of_user, rotate_session_token
from app.operations.store import audit, clock, rate_limits
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, TooManyRequests, Unavailable
from app.rules.identifiers import public_id
from app.rules.languages.sentences import sentence
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in import imported_hashes, passwords
from app.rules.sign_in.lockout import network_of

MAX_WAIT_SECONDS = 2.0
MAX_WAITING_THREADS = 4
"""Threads that may wait for a place. With the hashing ones they stay below the eight of a process."""


class _HashingQueue:
    """Places of those who hash or wait for it; no holder has more than half of them."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._most_each = max(1, places // 2)
        self._held: Counter[tuple[str, str]] = Counter()
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, holders: Iterable[tuple[str, str]]) -> bool:
        """A place is taken for all the holders, unless none is left for one of them."""
        with self._lock:
            if self._taken >= self.places or any(self._held[one] >= self._most_each for one in holders):
                return False
            self._taken += 1
            self._held.update(holders)
            return True

    def leave(self, holders: Iterable[tuple[str, str]]) -> None:
        """The place is free."""
        with self._lock:
            self._taken -= 1
            self._held.subtract(holders)
            self._held = +self._held


_hashing = threading.BoundedSemaphore(os.cpu_count() or 1)
_queue = _HashingQueue((os.cpu_count() or 1) + MAX_WAITING_THREADS)


@contextmanager
def _hashing_slot(organization_id: str | None = None, address: str | None = None) -> Iterator[None]:
    holders = [(organization_id, "")] if organization_id else []
    if address:
        # A network's storm is one storm, at however many organizations it knocks: it has one share of the places.
        holders.append(("", network_of(address)))
    queue = _queue
    if not queue.take(holders):
        raise _too_many()
    try:
        if not _hashing.acquire(timeout=MAX_WAIT_SECONDS):
            raise _too_many()
        try:
            yield
        finally:
            _hashing.release()
    finally:
        queue.leave(holders)


def _too_many() -> Unavailable:
    return Unavailable(
        "Too many people are signing in at this moment. Try again in a few seconds.", retry_after=3
    )


def verify_password(
    stored_hash: str | None, password: str, *, organization_id: str | None = None, address: str | None = None
) -> tuple[bool, str | None]:
    """(whether it is right, the hash to store from now on when the old one's parameters are outdated).

    Takes as long for nobody's password as for somebody's: where an organization has taken over hashes of other
    systems, a wrong password costs one hash of each kind that it still has, ours and every other, whosever it was.
    ``organization_id`` and ``address`` say whose place in the queue it takes. Raises Unavailable when too many wait,
    or for two seconds. Call it outside of a transaction.
    """
    with _hashing_slot(organization_id, address):
        is_right = passwords.verify_password(stored_hash, password)
        if not is_right and len(password) <= passwords.MAX_LENGTH:
            _spend_the_rest(organization_id, stored_hash, password)
        renewed = None
        if is_right and stored_hash is not None and passwords.needs_rehash(stored_hash):
            renewed = passwords.hash_password(password)
    return is_right, renewed


def _spend_the_rest(organization_id: str | None, stored_hash: str | None, password: str) -> None:
    """The hashes are made that a wrong password costs in the organization, without the one that was made (EN-1)."""
    schemes = list_password_schemes(organization_id) if organization_id else ()
    spent = imported_hashes.scheme_of(stored_hash) if stored_hash else None
    if spent in schemes:
        passwords.verify_password(None, password)
    for scheme in schemes:
        if scheme != spent:
            imported_hashes.verify_imported_password(imported_hashes.dummy_imported_hash(scheme), password)


def hash_new_password(
    settings: Mapping[str, Any],
    password: str,
    *,
    personal: Iterable[str] = (),
    field: str = "password",
    organization_id: str | None = None,
    address: str | None = None,
) -> str:
    """The hash of a new password that the organization's settings accept.

    ``personal`` are names and addresses that it must not consist of; ``organization_id`` and ``address`` say whose
    place in the queue it takes. Raises InvalidInput naming ``field``, and Unavailable as ``verify_password`` does.
    Call it before the transaction that stores the hash.
    """
    errors = passwords.find_password_errors(
        password, settings["authentication"]["password"], personal=personal, field=field
    )
    if errors:
        raise InvalidInput(errors[0].message, errors=errors)
    with _hashing_slot(organization_id, address):
        return passwords.hash_password(password)


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
    organization = get_organization_by_id(actor.organization_id)
    email, name, stored_hash = _read(actor)
    guess = sign_in_limits.claim_password_attempt(organization, email, address=actor.ip_address, known=known)
    claim = guess.claim
    if claim.retry_after:
        raise _too_many_password_changes(guess)
    place = {"organization_id": organization.id, "address": actor.ip_address}
    try:
        is_right, _ = verify_password(stored_hash, current, **place)
    except Unavailable:
        rate_limits.withdraw_attempts(organization.id, claim.attempts)
        raise
    if not is_right:
        raise InvalidInput(
            "This is not your current password.", field="current_password", code="wrong_password"
        )
    sign_in_limits.clear_failed_attempts(
        organization.id, canonical_email(email) or "", address=actor.ip_address, known=known
    )
    if new == current:
        raise InvalidInput(
            "This is your current password. Choose another.", field="new_password", code="unchanged"
        )
    personal = (email, name, organization.name, organization.slug)
    new_hash = hash_new_password(organization.settings, new, personal=personal, field="new_password", **place)
    return _store(actor, stored_hash, new_hash, known)


def _too_many_password_changes(guess: sign_in_limits.PasswordAttempt) -> TooManyRequests:
    wait = guess.claim.retry_after
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
    grants = revoke_grants_of_user(actor, user_id, reason="password_changed")
    audit.record(
        actor,
        "user.password_changed",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={"ended_sessions": ended, "ended_grants": grants},
    )
    known_browsers.forget_browsers_of_user(actor.organization_id, user_id, keep=known)
    notify_user(actor, user_id, "password_changed")
    return ChangedPassword(rotate_session_token(actor), ended)
