"""Known browsers: where somebody has signed in before, so that guesses made elsewhere do not make them wait (LK-1).

A browser's cookie for an organization holds a value for each of the last few people who signed in there completely.
Each is bound to one person, proves nothing but that, and is made anew for whoever is not known there yet: a value that
somebody planted stays that somebody's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import and_, delete, select, update

from app.extensions import db
from app.models.session import KnownBrowser
from app.models.user import User
from app.operations.mail.notices import notify_user
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import new_id, parse_public_id, public_id
from app.rules.sign_in.browser_names import browser_name
from app.rules.token_values import KNOWN_BROWSER, digest, new_token, parse_token

MAX_BROWSERS_PER_USER = 20
"""Whoever signs in again and again without cookies must not fill the table: the ones used longest ago go."""
MAX_USERS_PER_COOKIE = 4
"""People of one organization whom a browser remembers."""
KNOWN_BROWSER_LIFETIME = timedelta(days=365)
_SEPARATOR = "."


@dataclass(frozen=True, slots=True)
class KnownBrowserRecord:
    """A known browser as its owner sees it in a list."""

    public_id: str
    is_current: bool
    created_at: datetime
    last_used_at: datetime
    address: str | None
    user_agent: str


@read
def find_known_browser(organization_id: str, email_canonical: str, cookie: str) -> UUID | None:
    """The known browser of the account with the address that the cookie's value speaks of, or None."""
    found: UUID | None = db.session.scalar(
        select(KnownBrowser.id)
        .join(
            User, and_(User.organization_id == KnownBrowser.organization_id, User.id == KnownBrowser.user_id)
        )
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
    """The user's known browser that the cookie's value speaks of, if a second factor was given in it; or None."""
    found: UUID | None = db.session.scalar(
        select(KnownBrowser.id).where(
            KnownBrowser.organization_id == organization_id,
            KnownBrowser.user_id == user_id,
            KnownBrowser.digest.in_(_digests_of(organization_id, cookie)),
            KnownBrowser.expires_at > clock.now(),
            KnownBrowser.factor_given_at.is_not(None),
        )
    )
    return found


@transaction
def record_second_factor(organization_id: str, user_id: UUID, cookie: str) -> None:
    """A second factor was given, or set up, in the browser of the cookie; nothing for one that is not known."""
    count_changed(
        update(KnownBrowser)
        .where(
            KnownBrowser.organization_id == organization_id,
            KnownBrowser.user_id == user_id,
            KnownBrowser.digest.in_(_digests_of(organization_id, cookie)),
        )
        .values(factor_given_at=clock.now())
    )


@transaction
def clear_second_factors(organization_id: str, user_id: UUID) -> None:
    """No second factor was ever given in any browser of the user: those that were are gone."""
    count_changed(
        update(KnownBrowser)
        .where(KnownBrowser.organization_id == organization_id, KnownBrowser.user_id == user_id)
        .values(factor_given_at=None, code_failures=0)
    )


@transaction
def remember_browser(
    actor: Actor,
    user_id: UUID,
    cookie: str,
    *,
    user_agent: str,
    has_signed_in_before: bool,
    gave_factor: bool = False,
) -> str:
    """The browser is known as one of the user's from now on, a year at least; returns its cookie's value.

    Part of the complete sign-in that audits it; ``gave_factor`` says that a second factor was part of that. Whoever has
    signed in before, and never here, is told by mail.
    """
    here = actor.organization_id
    now = clock.now()
    seen: dict[str, Any] = {
        "last_used_at": now,
        "expires_at": now + KNOWN_BROWSER_LIFETIME,
        "address": (actor.ip_address or "")[:64] or None,
        "user_agent": "".join(char for char in user_agent if char.isprintable())[:255],
    }
    if gave_factor:
        seen["factor_given_at"] = now
    known = update(KnownBrowser).where(
        KnownBrowser.organization_id == here,
        KnownBrowser.user_id == user_id,
        KnownBrowser.digest.in_(_digests_of(here, cookie)),
        KnownBrowser.expires_at > now,
    )
    if count_changed(known.values(**seen)):
        return cookie
    unit = current_unit_of_work()
    token: str = unit.stable_value("known browser", lambda: new_token(KNOWN_BROWSER, here))
    _make_room(here, user_id)
    db.session.add(
        KnownBrowser(
            organization_id=here,
            id=unit.stable_value("known browser id", new_id),
            digest=digest(token),
            user_id=user_id,
            created_at=now,
            **seen,
        )
    )
    if has_signed_in_before:
        notify_user(actor, user_id, "new_browser", browser=browser_name(user_agent))
    return _SEPARATOR.join((token, *_tokens_of(here, cookie)[: MAX_USERS_PER_COOKIE - 1]))


@transaction
def forget_browsers_of_user(organization_id: str, user_id: UUID, *, keep: str | None = None) -> int:
    """No browser but that of the cookie ``keep`` is known as the user's; part of the change that audits it."""
    statement = delete(KnownBrowser).where(
        KnownBrowser.organization_id == organization_id, KnownBrowser.user_id == user_id
    )
    if keep:
        statement = statement.where(KnownBrowser.digest.not_in(_digests_of(organization_id, keep)))
    return count_changed(statement)


@read
def list_known_browsers(actor: Actor, cookie: str) -> list[KnownBrowserRecord]:
    """The actor's own known browsers, the one of the cookie first, then by last use."""
    here, user_id = actor.organization_id, actor.require_own_account()
    rows = db.session.scalars(
        select(KnownBrowser)
        .where(
            KnownBrowser.organization_id == here,
            KnownBrowser.user_id == user_id,
            KnownBrowser.expires_at > clock.now(),
        )
        .order_by(KnownBrowser.last_used_at.desc())
        .limit(MAX_BROWSERS_PER_USER)
    )
    current = _digests_of(here, cookie)
    listed = [
        KnownBrowserRecord(
            public_id("kbr", row.id),
            row.digest in current,
            row.created_at,
            row.last_used_at,
            row.address,
            row.user_agent,
        )
        for row in rows
    ]
    return sorted(listed, key=lambda browser: not browser.is_current)


@transaction
def forget_browser(actor: Actor, browser_id: str) -> None:
    """That browser is one of the actor's no more. Raises NotFound for anybody else's. Audit: ``browser.forgotten``."""
    here, user_id = actor.organization_id, actor.require_own_account()
    row_id = parse_public_id("kbr", browser_id)
    forgotten = count_changed(
        delete(KnownBrowser).where(
            KnownBrowser.organization_id == here,
            KnownBrowser.user_id == user_id,
            KnownBrowser.id == row_id,
        )
    )
    if not forgotten:
        raise NotFound("This browser is forgotten already.")
    audit.record(actor, "browser.forgotten", target_type="browser", target_id=browser_id)


def _make_room(organization_id: str, user_id: UUID) -> None:
    standing = db.session.scalars(
        select(KnownBrowser.id)
        .where(KnownBrowser.organization_id == organization_id, KnownBrowser.user_id == user_id)
        .order_by(KnownBrowser.last_used_at.desc())
        .offset(MAX_BROWSERS_PER_USER - 1)
        .limit(100)
    ).all()
    if standing:
        count_changed(
            delete(KnownBrowser).where(
                KnownBrowser.organization_id == organization_id, KnownBrowser.id.in_(standing)
            )
        )


def _tokens_of(organization_id: str, cookie: str) -> list[str]:
    """The well-formed values of the organization in a cookie, whatever a browser sent."""
    parts = cookie[:1000].split(_SEPARATOR)[:MAX_USERS_PER_COOKIE]
    parsed = [(part, parse_token(part)) for part in parts]
    return [
        part
        for part, token in parsed
        if token is not None and (token.kind, token.organization_id) == (KNOWN_BROWSER, organization_id)
    ]


def _digests_of(organization_id: str, cookie: str) -> list[bytes]:
    return [digest(token) for token in _tokens_of(organization_id, cookie)]
