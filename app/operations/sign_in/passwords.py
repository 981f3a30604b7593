"""Password hashing within limits, and changing one's own password.

One hash runs per core at a time, with a short queue, and never inside a transaction. A hash takes 19 MiB and
18 ms, so unlimited sign-ins would occupy every core and thread and starve the token endpoints (PW-6). An
organization and a network may each use at most half of the queue, and the turns to hash go from one to the next, so
that a flood at one does not block users of another (TN-14), also one at imported hashes that take a second each.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app import metrics
from app.circuit_breaker import Turns
from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.models.base import has_key
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import list_password_schemes, update_user_row
from app.operations.mail.notices import notify_user
from app.operations.sign_in import known_browsers, sign_in_limits
from app.operations.sign_in.sessions import end_access_of_user, rotate_session_token
from app.operations.store import audit, clock, rate_limits
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput, NotFound, TooManyRequests, Unavailable
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in import imported_hashes, passwords
from app.rules.sign_in.passwords import network_of

MAX_WAIT_SECONDS = 2.0
MAX_WAITING_THREADS = 14
"""With the hashing threads, half of a worker's: an office that begins its day waits a moment and is not refused."""
_hashing = Turns(os.cpu_count() or 1)
# Where users have imported hashes, an attempt may take several seconds. Such attempts leave a core to others.
_expensive = Turns(max(1, (os.cpu_count() or 1) - 1))
# As the last wrong password there found it.
_has_imported_hashes = BoundedCache[bool](max_entries=5_000)


class _HashingQueue:
    """Bounded queue of the threads that hash or wait to hash; each holder may use at most half of it."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._max_per_holder = max(1, capacity // 2)
        self._held: Counter[tuple[str, str]] = Counter()
        self._used = 0
        self._lock = threading.Lock()

    def acquire(self, holder_keys: Iterable[tuple[str, str]]) -> bool:
        """Take a slot for all the holders, or return False if one of them has none left."""
        with self._lock:
            if self._used >= self.capacity or any(
                self._held[one] >= self._max_per_holder for one in holder_keys
            ):
                return False
            self._used += 1
            self._held.update(holder_keys)
            return True

    def release(self, holder_keys: Iterable[tuple[str, str]]) -> None:
        """Free the slot."""
        with self._lock:
            self._used -= 1
            self._held.subtract(holder_keys)
            self._held = +self._held


_queue = _HashingQueue((os.cpu_count() or 1) + MAX_WAITING_THREADS)


def verify_password(
    stored_hash: str | None,
    password: str,
    *,
    organization_id: str | None = None,
    ip_address: str | None = None,
) -> tuple[bool, str | None]:
    """Return whether the password is right, and the hash to store if the old one's parameters are outdated.

    Takes equally long whether or not the user exists. Where an organization has imported hashes, a wrong
    password costs one hash of each scheme still in use, so that timing does not reveal an account's scheme. Once a
    wrong password has found such hashes, all attempts there leave a core to other organizations, whatever the account,
    so that a refusal reveals nothing either.
    ``organization_id`` and ``ip_address`` say whose share of the queue is used. Raises Unavailable when the
    queue is full or the wait exceeds two seconds. Call it outside of a transaction.
    """
    is_expensive = organization_id is not None and bool(_has_imported_hashes.get(organization_id))
    renewed = None
    with _hashing_slot(organization_id, ip_address, is_expensive=is_expensive):
        is_right = passwords.verify_password(stored_hash, password)
        if not is_right and organization_id and len(password) <= passwords.MAX_LENGTH:
            _equalize_verification_time(organization_id, stored_hash, password)
        if is_right and stored_hash is not None and passwords.needs_rehash(stored_hash):
            renewed = passwords.hash_password(password)
    return is_right, renewed


def hash_new_password(
    settings: Mapping[str, Any],
    password: str,
    *,
    personal: Iterable[str] = (),
    field: str = "password",
    organization_id: str | None = None,
    ip_address: str | None = None,
) -> str:
    """Hash a new password after checking it against the organization's policy.

    ``personal`` lists names and emails that it must not consist of. ``organization_id`` and ``ip_address``
    say whose share of the queue is used. Raises InvalidInput naming ``field``, and Unavailable as
    ``verify_password`` does. Call it before the transaction that stores the hash.
    """
    errors = passwords.find_password_errors(
        password, settings["authentication"]["password"], personal=personal, field=field
    )
    if errors:
        raise InvalidInput(errors[0].message, errors=errors)
    with _hashing_slot(organization_id, ip_address):
        return passwords.hash_password(password)


def change_password(actor: Actor, current: str, new: str, *, known_cookie: str = "") -> str | None:
    """Change the actor's own password, end their other sessions and revoke their grants (SS-6).

    Return the new session cookie. Only the browser of ``known_cookie``, the known-browsers cookie, remains known. The
    user is notified by email. Needs the current password (PW-4). Wrong guesses count together with failed sign-ins, so
    that a stolen session does not allow more of them (LK-1). Raises InvalidInput naming ``current_password`` or
    ``new_password``, TooManyRequests, and Unavailable when hashing has to wait. Audit: ``user.password_changed``.
    """
    user_id = actor.require_own_account()
    organization = get_organization_by_id(actor.organization_id)
    email, name, stored_hash, changed_at = _find_credentials(actor, organization)
    canonical = canonical_email(email) or ""
    browser = known_browsers.find_known_browser(organization.id, canonical, known_cookie)
    attempt = sign_in_limits.claim_password_attempt(
        organization, email, ip_address=actor.ip_address, browser=browser
    )
    result = attempt.result
    if result.retry_after:
        raise _too_many_wrong_passwords(attempt)
    queue_share = {"organization_id": organization.id, "ip_address": actor.ip_address}
    try:
        is_right, _ = verify_password(stored_hash, current, **queue_share)
    except Unavailable:
        rate_limits.withdraw_attempts(organization.id, result.attempts)
        raise
    if not is_right:
        raise InvalidInput("Incorrect password.", field="current_password", code="wrong_password")
    sign_in_limits.clear_failed_attempts(
        organization.id,
        canonical,
        ip_address=actor.ip_address,
        browser=browser,
        attempts=result.attempts,
    )
    if new == current:
        raise InvalidInput(
            "This is your current password. Choose a different one.", field="new_password", code="unchanged"
        )
    personal = (email, name, organization.name, organization.slug)
    new_hash = hash_new_password(
        organization.settings, new, personal=personal, field="new_password", **queue_share
    )
    return _store_password(actor, user_id, changed_at, new_hash, known_cookie)


def hashing_load() -> tuple[int, int]:
    """Return how many hashes run in this process, and how many wait."""
    return _hashing.taken, _hashing.waiting + _expensive.waiting


@contextmanager
def _hashing_slot(
    organization_id: str | None = None, ip_address: str | None = None, *, is_expensive: bool = False
) -> Iterator[None]:
    """Hold a slot of the queue and a turn, ``is_expensive`` one of those that leave a core to others.

    Raises Unavailable.
    """
    holder_keys = [(organization_id, "")] if organization_id else []
    if ip_address:
        # A flood from one network counts once, however many organizations it targets.
        holder_keys.append(("", network_of(ip_address)))
    queue = _queue
    if not queue.acquire(holder_keys):
        raise _too_many_sign_ins()
    try:
        with _turn(holder_keys, (_expensive, _hashing) if is_expensive else (_hashing,)):
            yield
    finally:
        queue.release(holder_keys)


@contextmanager
def _turn(holder_keys: Collection[tuple[str, str]], kinds: Iterable[Turns]) -> Iterator[None]:
    """Hold a turn of each kind. Raises Unavailable after two seconds of waiting."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    with ExitStack() as taken:
        for turns in kinds:
            if not turns.take(max(0.0, deadline - time.monotonic()), holder_keys):
                raise _too_many_sign_ins()
            taken.callback(turns.give_back)
        yield


def _too_many_sign_ins() -> Unavailable:
    metrics.recorder.count(metrics.HASHES_REFUSED)
    return Unavailable(
        lazy_gettext("Too many people are signing in at this moment. Try again in a few seconds."),
        retry_after=3,
    )


def _equalize_verification_time(organization_id: str, stored_hash: str | None, password: str) -> None:
    """Compute a hash of each other scheme in use, so that every wrong password costs the same (EN-1)."""
    schemes = list_password_schemes(organization_id)
    _has_imported_hashes.put(organization_id, value=bool(schemes))
    verified_scheme = imported_hashes.scheme_of(stored_hash) if stored_hash else None
    if verified_scheme in schemes:
        passwords.verify_password(None, password)
    for scheme in schemes:
        if scheme != verified_scheme:
            imported_hashes.verify_imported_password(imported_hashes.dummy_imported_hash(scheme), password)


def _too_many_wrong_passwords(attempt: sign_in_limits.PasswordAttempt) -> TooManyRequests:
    wait = attempt.result.retry_after
    if attempt.is_capped:
        words = lazy_gettext(
            "Too many incorrect passwords from unrecognized browsers. Change your password in a browser you have "
            "used before, or reset it with a link."
        )
    else:
        words = lazy_gettext("Too many incorrect passwords. Try again in %(wait)s seconds.", wait=wait)
    return TooManyRequests(words, retry_after=wait)


@read
def _find_credentials(
    actor: Actor, organization: OrganizationSnapshot
) -> tuple[str, str, str | None, datetime | None]:
    row = db.session.execute(
        select(User.email, User.name, User.password_hash, User.password_changed_at, User.created_at).where(
            has_key(User, actor.organization_id, actor.user_id), User.status == ACTIVE
        )
    ).first()
    if row is None:
        raise NotFound("There is no such user.")
    if organization.blocks_password(row.password_changed_at, row.created_at):
        raise Conflict(
            "Your password must be reset. Sign out and request a link.", code="password_reset_required"
        )
    return row.email, row.name, row.password_hash, row.password_changed_at


@transaction
def _store_password(
    actor: Actor, user_id: UUID, changed_at: datetime | None, new_hash: str, known_cookie: str
) -> str | None:
    is_stored = update_user_row(
        actor.organization_id,
        user_id,
        User.password_changed_at == changed_at,
        password_hash=new_hash,
        password_scheme=None,
        password_changed_at=clock.now(),
    )
    if not is_stored:
        raise Conflict("Your password was just changed in another window. Try again with your new password.")
    ended = end_access_of_user(actor, user_id, reason="password_changed", keep=actor.session_id)
    audit.record_user_event(actor, "user.password_changed", user_id, after=ended)
    known_browsers.forget_browsers_of_user(actor.organization_id, user_id, keep=known_cookie)
    notify_user(actor, user_id, "password_changed")
    return rotate_session_token(actor)
