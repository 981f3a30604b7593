"""Known browsers: where a user has signed in before, so that failures elsewhere do not delay them (LK-1).

A browser's cookie for an organization holds one value for each of the last few users who completed a sign-in
there. Each value is bound to one user and proves nothing else. A user who is not known yet gets a new value,
so a planted cookie never becomes someone else's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Integer, and_, bindparam, delete, func, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery, ListQuery, insert_into, list_parameters, list_values
from app.models.base import is_of_user, is_same
from app.models.session import KnownBrowser
from app.models.user import User
from app.operations.mail.notices import notify_user
from app.operations.store import audit, clock
from app.operations.store.rows import make_record
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    read,
    transaction,
    transaction_part,
)
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import (
    KNOWN_BROWSER,
    digest,
    is_token_of,
    new_id,
    new_token,
    parse_public_id,
    public_id,
)
from app.rules.sign_in.browser_names import browser_name, printable_user_agent

MAX_BROWSERS_PER_USER = 20
"""Repeated sign-ins without cookies must not fill the table. The least recently used ones are deleted."""
MAX_USERS_PER_COOKIE = 4
"""Users of one organization that a browser remembers."""
KNOWN_BROWSER_LIFETIME = timedelta(days=365)
_SEPARATOR = "."
IS_IN_COOKIE = and_(
    KnownBrowser.digest.in_(list_parameters("cookie_digest", KnownBrowser.digest, MAX_USERS_PER_COOKIE)),
    KnownBrowser.expires_at > bindparam("now", type_=KnownBrowser.expires_at.type),
)
"""The condition that a known browser is named by a cookie, whose values are ``cookie_parameters``."""
_INSERT = CompiledQuery(insert_into(KnownBrowser))
_FIND_EXCESS = CompiledQuery(
    select(KnownBrowser.id)
    .where(
        is_of_user(KnownBrowser, bindparam("organization_id"), bindparam("user_id")),
    )
    .order_by(KnownBrowser.last_used_at.desc())
    .offset(bindparam("kept", type_=Integer))
    .limit(100)
)
_SEEN_AGAIN = CompiledQuery(
    update(KnownBrowser)
    .where(
        is_of_user(KnownBrowser, bindparam("of_organization"), bindparam("of_user")),
        IS_IN_COOKIE,
    )
    .values(
        last_used_at=bindparam("now", type_=KnownBrowser.last_used_at.type),
        expires_at=bindparam("expires_at"),
        address=bindparam("address"),
        user_agent=bindparam("user_agent"),
        factor_given_at=func.coalesce(
            bindparam("factor_given_at", type_=KnownBrowser.factor_given_at.type),
            KnownBrowser.factor_given_at,
        ),
    )
)


class KnownBrowserRecord(Struct, frozen=True):
    """A known browser as shown to its user in a list."""

    public_id: str
    is_current: bool
    created_at: datetime
    last_used_at: datetime
    address: str | None
    user_agent: str


@read
def find_known_browser(organization_id: str, email_canonical: str, cookie: str) -> UUID | None:
    """Find the known browser of the account with the email among the cookie's values."""
    found: UUID | None = db.session.scalar(
        select(KnownBrowser.id)
        .join(User, is_same(User.id, KnownBrowser.user_id))
        .where(
            KnownBrowser.organization_id == organization_id,
            KnownBrowser.digest.in_(_digests_of(organization_id, cookie)),
            KnownBrowser.expires_at > clock.now(),
            User.email_canonical == email_canonical,
        )
    )
    return found


@read
def find_browser_with_second_factor(organization_id: str, user_id: UUID, cookie: str) -> UUID | None:
    """Find the user's known browser among the cookie's values if a second factor was used in it."""
    found: UUID | None = db.session.scalar(
        select(KnownBrowser.id).where(
            is_of_user(KnownBrowser, organization_id, user_id),
            KnownBrowser.digest.in_(_digests_of(organization_id, cookie)),
            KnownBrowser.expires_at > clock.now(),
            KnownBrowser.factor_given_at.is_not(None),
        )
    )
    return found


@transaction
def record_second_factor(organization_id: str, user_id: UUID, cookie: str) -> None:
    """Record that a second factor was used or set up in the cookie's known browser, if there is one."""
    count_changed(
        update(KnownBrowser)
        .where(
            is_of_user(KnownBrowser, organization_id, user_id),
            KnownBrowser.digest.in_(_digests_of(organization_id, cookie)),
        )
        .values(factor_given_at=clock.now())
    )


@transaction
def clear_second_factors(organization_id: str, user_id: UUID) -> None:
    """Clear the record of used second factors in all browsers of the user, after the factors were removed."""
    count_changed(
        update(KnownBrowser)
        .where(is_of_user(KnownBrowser, organization_id, user_id))
        .values(factor_given_at=None, code_failures=0)
    )


def cookie_parameters(organization_id: str, cookie: str, now: datetime) -> dict[str, Any]:
    """Return the values of the parameters of ``IS_IN_COOKIE``; a cookie without values names no browser."""
    digests = _digests_of(organization_id, cookie)
    return {"now": now} | list_values("cookie_digest", digests, MAX_USERS_PER_COOKIE)


@transaction_part
def remember_browser(
    actor: Actor,
    user_id: UUID,
    cookie: str,
    *,
    user_agent: str,
    has_signed_in_before: bool,
    used_factor: bool = False,
    browser_count: int | None = None,
) -> str:
    """Remember the browser as known to the user for a year and return the new cookie value.

    Call it in the sign-in's transaction, which audits it. ``used_factor`` says that a second factor was used,
    ``browser_count`` how many browsers are known, if the caller has counted them. A user who has signed in before, but
    never in this browser, is notified by email.
    """
    organization_id = actor.organization_id
    now = clock.now()
    seen: dict[str, Any] = {
        "expires_at": now + KNOWN_BROWSER_LIFETIME,
        "address": (actor.ip_address or "")[:64] or None,
        "user_agent": printable_user_agent(user_agent),
        "factor_given_at": now if used_factor else None,
    }
    named = cookie_parameters(organization_id, cookie, now)
    if named["cookie_digest_0"] is not None and _SEEN_AGAIN.write(
        of_organization=organization_id, of_user=user_id, **named, **seen
    ):
        return cookie
    unit = current_unit_of_work()
    token: str = unit.stable_value("known browser", lambda: new_token(KNOWN_BROWSER, organization_id))
    if browser_count is None or browser_count >= MAX_BROWSERS_PER_USER:
        _enforce_browser_limit(organization_id, user_id)
    _INSERT.write_later(
        organization_id=organization_id,
        id=unit.stable_value("known browser id", new_id),
        digest=digest(token),
        user_id=user_id,
        created_at=now,
        last_used_at=now,
        code_failures=0,
        **seen,
    )
    if has_signed_in_before:
        notify_user(actor, user_id, "new_browser", browser=browser_name(user_agent))
    return _SEPARATOR.join((token, *_tokens_of(organization_id, cookie)[: MAX_USERS_PER_COOKIE - 1]))


@transaction
def forget_browsers_of_user(organization_id: str, user_id: UUID, *, keep: str | None = None) -> int:
    """Forget the user's known browsers except the one of the cookie ``keep``.

    Call it in the transaction that audits it.
    """
    statement = delete(KnownBrowser).where(is_of_user(KnownBrowser, organization_id, user_id))
    if keep:
        statement = statement.where(KnownBrowser.digest.not_in(_digests_of(organization_id, keep)))
    return count_changed(statement)


@read
def list_known_browsers(actor: Actor, cookie: str) -> list[KnownBrowserRecord]:
    """List the actor's own known browsers, the one of the cookie first, then by last use."""
    organization_id, user_id = actor.organization_id, actor.require_own_account()
    rows = db.session.scalars(
        select(KnownBrowser)
        .where(
            is_of_user(KnownBrowser, organization_id, user_id),
            KnownBrowser.expires_at > clock.now(),
        )
        .order_by(KnownBrowser.last_used_at.desc())
        .limit(MAX_BROWSERS_PER_USER)
    )
    current = _digests_of(organization_id, cookie)
    listed = [
        make_record(
            KnownBrowserRecord, row, public_id=public_id("kbr", row.id), is_current=row.digest in current
        )
        for row in rows
    ]
    return sorted(listed, key=lambda browser: not browser.is_current)


@transaction
def forget_browser(actor: Actor, browser_id: str) -> None:
    """Forget one of the actor's own known browsers. Raises NotFound. Audit: ``browser.forgotten``."""
    organization_id, user_id = actor.organization_id, actor.require_own_account()
    row_id = parse_public_id("kbr", browser_id)
    forgotten = count_changed(
        delete(KnownBrowser).where(
            is_of_user(KnownBrowser, organization_id, user_id),
            KnownBrowser.id == row_id,
        )
    )
    if not forgotten:
        raise NotFound("This browser was already removed.")
    audit.record(actor, "browser.forgotten", "browser", browser_id)


def _enforce_browser_limit(organization_id: str, user_id: UUID) -> None:
    kept = MAX_BROWSERS_PER_USER - 1
    rows = _FIND_EXCESS.rows(organization_id=organization_id, user_id=user_id, kept=kept)
    excess = [row.id for row in rows]
    if excess:
        _DELETE.write(excess, organization_id=organization_id)


_DELETE = ListQuery(
    delete(KnownBrowser).where(KnownBrowser.organization_id == bindparam("organization_id")), KnownBrowser.id
)


def _tokens_of(organization_id: str, cookie: str) -> list[str]:
    """Return the well-formed values of the organization in a cookie, whose content is untrusted."""
    parts = cookie[:1000].split(_SEPARATOR)[:MAX_USERS_PER_COOKIE]
    return [part for part in parts if is_token_of(part, KNOWN_BROWSER, organization_id)]


def _digests_of(organization_id: str, cookie: str) -> list[bytes]:
    return [digest(token) for token in _tokens_of(organization_id, cookie)]
