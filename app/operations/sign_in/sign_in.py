"""Completing a sign-in after any first or second factor.

Every sign-in ends in ``complete_first_factor`` or ``complete_second_factor``, so that no path to a session
skips the organization's second-factor policy (MF-6).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import and_, bindparam, func, select, update
from sqlalchemy.orm import aliased

from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key, is_of_user, is_same
from app.models.session import KnownBrowser, Session
from app.models.user import ACTIVE, RoleAssignment, User
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in import known_browsers, sign_in_limits
from app.operations.sign_in.pending_sign_ins import (
    PendingSignInRecord,
    ProviderSession,
    SignInEnded,
    clear_code_failures,
    consume_pending_sign_in,
    create_pending_sign_in,
)
from app.operations.sign_in.second_factors import METHOD_COLUMNS, decide_mfa_of_user, methods_of
from app.operations.sign_in.sessions import find_session, start_session
from app.operations.store import audit, clock, rate_limits
from app.operations.store.transactions import on_commit, transaction, transaction_part
from app.operations.store.usage_counters import ACTIVE_USER, SIGN_INS, counters
from app.rules.actor import Actor
from app.rules.directory.permissions import permissions_of_roles
from app.rules.identifiers import public_id
from app.rules.organizations.settings_table import MAX_REAUTHENTICATION_SECONDS
from app.rules.sign_in.identity_providers import AMR as AMR_PROVIDER
from app.rules.sign_in.second_factors import MfaRequirement, combine_amr, used_second_factor


class SignedIn(Struct, frozen=True):
    """A completed sign-in.

    ``token`` is the session cookie's value, available in clear only here. ``known_cookie`` is the new value of the
    known-browsers cookie. ``has_permissions`` says that the user may do anything in the organization's portal.
    """

    token: str
    session_id: UUID
    user_id: UUID
    known_cookie: str = ""
    has_permissions: bool = False


class SecondStepRequired(Struct, frozen=True):
    """A sign-in that needs another step before ``expires_at``; ``token`` identifies it on the next page.

    ``purpose`` is VERIFY when the user has a second factor, ENROL when one is required but not set up, and
    OFFER when it becomes required at ``until`` and may be set up now or later.
    """

    token: str
    expires_at: datetime
    purpose: MfaRequirement
    until: datetime | None = None


class Browser(Struct, frozen=True):
    """The browser that signs in.

    ``id`` is its anonymous id, which binds a pending sign-in to it. ``replaces`` is the organization's
    previous session cookie, invalid after a successful sign-in. ``known_cookie`` is the value of the known-browsers
    cookie.
    """

    id: str = ""
    user_agent: str = ""
    replaces: str | None = None
    known_cookie: str = ""


_USER_KEY: tuple[Any, Any] = (bindparam("organization_id"), bindparam("user_id"))
IS_KNOWN_BROWSER = and_(
    is_same(KnownBrowser.user_id, User.id),
    known_browsers.IS_IN_COOKIE,
)
LOCK_USER = select(User.email, User.email_canonical, User.last_sign_in_at).where(
    has_key(User, *_USER_KEY), User.status == ACTIVE
)
_LOCK = CompiledQuery(LOCK_USER.with_for_update())
_OTHER_BROWSERS = aliased(KnownBrowser)
# One row for each role of the user in the organization, or one without a role.
_READ_STATE = CompiledQuery(
    select(
        RoleAssignment.role,
        KnownBrowser.id.label("browser_id"),
        *METHOD_COLUMNS,
        select(func.count())
        .select_from(Session)
        .where(is_of_user(Session, *_USER_KEY))
        .scalar_subquery()
        .label("sessions"),
        select(func.count())
        .select_from(_OTHER_BROWSERS)
        .where(is_of_user(_OTHER_BROWSERS, *_USER_KEY))
        .scalar_subquery()
        .label("browsers"),
    )
    .select_from(User)
    .outerjoin(
        RoleAssignment,
        and_(
            is_same(RoleAssignment.user_organization_id, User.organization_id),
            RoleAssignment.user_id == User.id,
        ),
    )
    .outerjoin(KnownBrowser, IS_KNOWN_BROWSER)
    .where(has_key(User, *_USER_KEY))
)
_UPDATE_LAST_SIGN_IN = CompiledQuery(
    update(User)
    .where(has_key(User, bindparam("of_organization"), bindparam("of_user")))
    .values(last_sign_in_at=bindparam("last_sign_in_at"))
)


class _SigningUser(Struct, frozen=True):
    """The user whose first factor was accepted: a locked row, and what belongs to it.

    ``attempts`` are the claimed guesses of a password that turned out to be right.
    """

    id: UUID
    email: str
    email_canonical: str
    last_sign_in_at: datetime | None
    roles: tuple[str, ...]
    methods: tuple[str, ...]
    browser_id: UUID | None
    session_count: int
    browser_count: int
    attempts: tuple[UUID, ...]


@transaction_part
def complete_first_factor(
    actor: Actor,
    organization: OrganizationSnapshot,
    user_id: UUID,
    *,
    amr: tuple[str, ...],
    browser: Browser,
    provider: ProviderSession | None = None,
) -> SignedIn | SecondStepRequired:
    """Start a session, or begin the second step if the organization requires one.

    Call it in the transaction that accepted the first factor. ``actor`` is the anonymous actor with IP
    address and request id. ``amr`` lists the authentication methods used (RFC 8176), including ``mfa`` when
    they already were two factors. ``provider`` is the sign-in at an identity provider that was accepted. Raises
    SignInEnded when the user can no longer sign in. Audit: ``session.started`` or ``sign_in.first_proof_given``.
    """
    row = _lock_user(organization, user_id)
    return complete_for_locked_user(
        actor, organization, user_id, row, amr=amr, browser=browser, provider=provider
    )


def complete_for_locked_user(
    actor: Actor,
    organization: OrganizationSnapshot,
    user_id: UUID,
    row: Any,
    *,
    amr: tuple[str, ...],
    browser: Browser,
    provider: ProviderSession | None = None,
    attempts: tuple[UUID, ...] = (),
) -> SignedIn | SecondStepRequired:
    """Do what ``complete_first_factor`` does for a user whose ``row`` of LOCK_USER the transaction holds already.

    ``attempts`` are the claimed guesses of a password that turned out to be right.
    """
    user = _read_user(organization, user_id, row, browser, attempts)
    return _complete_first_factor(actor, organization, user, amr, browser, provider)


@transaction
def complete_second_factor(
    actor: Actor,
    organization: OrganizationSnapshot,
    pending: PendingSignInRecord,
    methods: Iterable[str],
    browser: Browser,
) -> SignedIn | SecondStepRequired:
    """Complete a pending sign-in after its second factor was verified with the ``methods`` given.

    Call it in the transaction that accepted the factor. Another step may follow when the factor's method is
    no longer allowed and the policy requires a different one. Raises SignInEnded. Audit: as
    ``complete_first_factor``.
    """
    consume_pending_sign_in(pending)
    amr = combine_amr(pending.amr, methods)
    return complete_first_factor(
        actor, organization, pending.user_id, amr=amr, browser=browser, provider=pending.provider
    )


@transaction
def postpone_enrollment(
    actor: Actor, organization: OrganizationSnapshot, pending: PendingSignInRecord, browser: Browser
) -> SignedIn | SecondStepRequired:
    """Sign the user in without the second factor that was offered.

    Return another step if the organization requires the factor by now. Raises SignInEnded. Audit:
    ``session.started``.
    """
    consume_pending_sign_in(pending)
    row = _lock_user(organization, pending.user_id)
    user = _read_user(organization, pending.user_id, row, browser)
    return _complete_first_factor(
        actor, organization, user, pending.amr, browser, pending.provider, is_offer_declined=True
    )


def _lock_user(organization: OrganizationSnapshot, user_id: UUID) -> Any:
    """Lock the user's row and return it. Raises SignInEnded when the user can no longer sign in.

    A concurrent disable or delete either waits for this transaction or is visible to it, and sign-ins of the user count
    each other's sessions.
    """
    row = _LOCK.first(organization_id=organization.id, user_id=user_id)
    if row is None:
        raise SignInEnded
    return row


def _read_user(
    organization: OrganizationSnapshot,
    user_id: UUID,
    locked: Any,
    browser: Browser,
    attempts: tuple[UUID, ...] = (),
) -> _SigningUser:
    """Read what a sign-in needs to know of the user, whose row is locked."""
    rows = _READ_STATE.rows(
        organization_id=organization.id,
        user_id=user_id,
        **known_browsers.cookie_parameters(organization.id, browser.known_cookie, clock.now()),
    )
    state = rows[0]
    return _SigningUser(
        user_id,
        locked.email,
        locked.email_canonical,
        locked.last_sign_in_at,
        roles=tuple({row.role for row in rows if row.role is not None}),
        methods=methods_of(state),
        browser_id=state.browser_id,
        session_count=state.sessions,
        browser_count=state.browsers,
        attempts=attempts,
    )


def _complete_first_factor(
    actor: Actor,
    organization: OrganizationSnapshot,
    user: _SigningUser,
    amr: tuple[str, ...],
    browser: Browser,
    provider: ProviderSession | None = None,
    *,
    is_offer_declined: bool = False,
) -> SignedIn | SecondStepRequired:
    if used_second_factor(amr):
        # Also if another step follows: a right code is no guess.
        clear_code_failures(organization.id, user.id)
    decision = decide_mfa_of_user(organization, user.id, amr, enrolled=user.methods)
    is_declined = decision.requirement is MfaRequirement.OFFER and (
        is_offer_declined or _is_signing_in_again(organization, user, browser)
    )
    if decision.requirement is MfaRequirement.NOTHING or is_declined:
        return _start_session(actor, organization, user, amr, browser, provider)
    rate_limits.withdraw_attempts(organization.id, user.attempts)
    token, expires_at = create_pending_sign_in(
        organization, user.id, amr, browser.id, browser.known_cookie, provider
    )
    audit.record_user_event(
        actor.as_user(user.id, user.email),
        "sign_in.first_proof_given",
        user.id,
        after=_facts(amr, provider) | {"needs": decision.requirement.value},
    )
    return SecondStepRequired(token, expires_at, decision.requirement, decision.until)


def _is_signing_in_again(organization: OrganizationSnapshot, user: _SigningUser, browser: Browser) -> bool:
    """Return whether the user has a session in the browser. They were offered a second factor when it began.

    A sign-in that waits for the answer to an offer does not keep when the identity provider authenticated the user, so
    its session counts as old. Whatever asked for a recent sign-in would ask again and again.
    """
    session = find_session(browser.replaces) if browser.replaces is not None else None
    return session is not None and (session.organization_id, session.user_id) == (organization.id, user.id)


def _start_session(
    actor: Actor,
    organization: OrganizationSnapshot,
    user: _SigningUser,
    amr: tuple[str, ...],
    browser: Browser,
    provider: ProviderSession | None,
) -> SignedIn:
    _UPDATE_LAST_SIGN_IN.write_later(
        of_organization=organization.id, of_user=user.id, last_sign_in_at=clock.now()
    )
    sign_in_limits.clear_failed_attempts(
        organization.id,
        user.email_canonical,
        ip_address=actor.ip_address,
        browser=user.browser_id,
        attempts=user.attempts,
    )
    token, session_id = start_session(
        organization,
        user.id,
        amr=" ".join(amr),
        ip_address=actor.ip_address,
        user_agent=browser.user_agent,
        replaces=browser.replaces,
        session_count=user.session_count,
        authenticated_at=_time_at_provider(organization, provider) if amr == (AMR_PROVIDER,) else None,
        provider=provider,
    )
    user_actor = replace(actor.as_user(user.id, user.email), session_id=session_id)
    known_cookie = known_browsers.remember_browser(
        user_actor,
        user.id,
        browser.known_cookie,
        user_agent=browser.user_agent,
        has_signed_in_before=user.last_sign_in_at is not None,
        used_factor=used_second_factor(amr),
        browser_count=user.browser_count,
    )
    audit.record(
        user_actor,
        "session.started",
        "session",
        public_id("ses", session_id),
        after=_facts(amr, provider),
    )
    on_commit(lambda: _count_sign_in(user_actor.organization_id, user.id, amr[0]))
    permissions = permissions_of_roles(user.roles, organization.settings, is_root=organization.is_root)
    return SignedIn(token, session_id, user.id, known_cookie, bool(permissions))


def _facts(amr: tuple[str, ...], provider: ProviderSession | None) -> dict[str, Any]:
    """Return the facts of an event: the methods, and the identity provider where the first one was used."""
    at_provider = {} if provider is None else {"provider": public_id("idp", provider.provider_id)}
    return {"methods": list(amr)} | at_provider


def _time_at_provider(organization: OrganizationSnapshot, provider: ProviderSession | None) -> datetime:
    """Return ``auth_time`` of a session that an identity provider alone authenticated.

    It may have asked the user nothing. Unless it says when it last did, the sign-in counts as just too old for what
    requires a recent one, in any organization if the user is one of root. It never lies before a cutoff of the
    organization, which would invalidate what is issued in the session.
    """
    now = clock.now()
    max_age: int = organization.settings["authentication"]["sessions"]["reauthentication_seconds"]
    if organization.is_root:
        max_age = MAX_REAUTHENTICATION_SECONDS
    too_old = now - timedelta(seconds=max_age + 1)
    earliest = max(
        too_old, organization.tokens_valid_from or too_old, organization.sessions_not_before or too_old
    )
    said = provider.authenticated_at if provider is not None else None
    return min(now, max(earliest, said or earliest))


def _count_sign_in(organization_id: str, user_id: UUID, method: str) -> None:
    counters.add(organization_id, ((SIGN_INS, method),))
    counters.add(organization_id, ACTIVE_USER, None, user_id)
