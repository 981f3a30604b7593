"""Signing in with an identity provider (OpenID Connect Core 1.0 section 3.1), which may create or link a user.

Nothing is stored until the provider has answered. Its answer carries the sealed request back in ``state``, which only
the browser that began can use, and only once.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from app.models.user import ACTIVE, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import (
    UserSnapshot,
    find_user_by_email,
    get_user,
    hold_user,
    update_user_row,
)
from app.operations.sign_in.actor_access import has_special_role
from app.operations.sign_in.identity_providers import (
    IdentityProviderRecord,
    find_enabled_provider,
    hold_provider,
)
from app.operations.sign_in.linked_identities import (
    LinkedIdentityRecord,
    find_identity,
    link_identity,
    record_use,
)
from app.operations.sign_in.pending_sign_ins import ProviderSession
from app.operations.sign_in.provider_answers import ProviderAnswer, redeem_answer
from app.operations.sign_in.provider_metadata import ProviderUnusable, read_published
from app.operations.sign_in.reauthentication import require_active_session, require_fresh_sign_in
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, complete_first_factor
from app.operations.store import audit, clock, idempotency, keyring, rate_limits
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.store.rate_limits import network_limits
from app.operations.store.transactions import transaction
from app.operations.users.invitations import accept_invitation
from app.operations.users.provider_groups import (
    ProviderGroups,
    apply_provider_groups,
    hold_provider_groups,
    needs_groups,
)
from app.operations.users.provisioning import find_managed_user, find_managing_provider
from app.operations.users.sign_up import create_registered_user
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from app.rules.fields import text_problem
from app.rules.identifiers import public_id
from app.rules.jws import decode_base64url
from app.rules.mail.email_addresses import canonical_email
from app.rules.sealing import UnsealError
from app.rules.sign_in.identity_providers import (
    AMR,
    LEEWAY,
    REQUEST_LIFETIME,
    authorization_url,
    is_error_code,
)
from app.rules.sign_in.passwords import Lockout
from app.rules.sign_in.provider_tokens import ProviderIdentity, ProviderTokenInvalid
from app.rules.store.outgoing_http import OutgoingRequestBlocked
from app.rules.users.profile import MAX_NAME_LENGTH, is_domain_allowed

_log = logging.getLogger("gatehouse.sign_in")
_PER_NETWORK = Lockout(60, timedelta(minutes=5), timedelta(seconds=30), timedelta(minutes=5))
"""Answers of providers from one network that sign nobody in: each causes requests to the provider."""
_PURPOSE = "provider sign-in"
INVITATION = "invitation"

ProviderRefusalReason = Literal[
    "expired", "cancelled", "failed", "not_fresh", "no_account", "email_unverified", "exists", "domain", "full",
    "disabled", "taken", "already_linked", "withdrawn",
]  # fmt: skip
_CONFLICTS: Mapping[str, ProviderRefusalReason] = {
    "identity_taken": "taken",
    "already_linked": "already_linked",
    "changed_meanwhile": "expired",
    "email_taken": "exists",
    "too_many_users": "full",
}


class ProviderRefused(Struct, frozen=True):
    """The reason why a sign-in with a provider was rejected."""

    reason: ProviderRefusalReason


class ProviderOutcome(Struct, frozen=True):
    """What an answer led to: a sign-in, another step, a linked account (None), or a refusal.

    ``parameters`` are those with which the sign-in began. ``is_linking``: it was to link an account.
    """

    result: SignedIn | SecondStepRequired | ProviderRefused | None
    parameters: Mapping[str, str]
    is_linking: bool = False


class _Request(Struct, frozen=True):
    provider_id: str
    browser: str
    nonce: str
    code_verifier: str
    began_at: float
    parameters: dict[str, str]
    must_be_fresh: bool = False
    linking_user: str | None = None


class _Arrival(Struct, frozen=True):
    """An anonymous user, the request that began the sign-in, and whom the provider says that it is."""

    actor: Actor
    browser: Browser
    organization: OrganizationSnapshot
    provider: IdentityProviderRecord
    begun: _Request
    identity: ProviderIdentity


def begin_provider_sign_in(
    actor: Actor,
    organization: OrganizationSnapshot,
    provider_slug: str,
    browser: Browser,
    *,
    parameters: Mapping[str, str],
    login_hint: str = "",
    must_be_fresh: bool = False,
    selects_account: bool = False,
) -> str:
    """Return the URL of the provider at which the user signs in.

    ``actor`` is the anonymous actor. ``parameters`` say where the sign-in leads; with INVITATION, the token of one, it
    accepts the invitation. With ``must_be_fresh``, the user has to sign in there again. Raises NotFound without such an
    enabled provider, and ProviderUnusable if its metadata cannot be read now. Audit: ``identity_provider.failed``.
    """
    prompt = "login" if must_be_fresh else "select_account" if selects_account else ""
    return _begin(actor, organization, provider_slug, browser, parameters, login_hint, prompt, None)


def begin_linking(actor: Actor, provider_slug: str, browser: Browser) -> str:
    """Return the URL of the provider at which the actor signs in with the account to link.

    Raises Forbidden, FreshSignInRequired, and as ``begin_provider_sign_in``.
    """
    user_id = actor.require_own_account()
    require_fresh_sign_in(actor)
    organization = get_organization_by_id(actor.organization_id)
    return _begin(actor, organization, provider_slug, browser, {}, "", "select_account", user_id)


def _begin(
    actor: Actor,
    organization: OrganizationSnapshot,
    provider_slug: str,
    browser: Browser,
    parameters: Mapping[str, str],
    login_hint: str,
    prompt: str,
    linking_user: UUID | None,
) -> str:
    provider = _get_provider(organization, provider_slug)
    try:
        metadata = read_published(provider.organization_id, provider.issuer).metadata
    except ProviderUnusable as error:
        # Otherwise, visitors could fill the audit log.
        if not error.is_repeated:
            _record_defect(actor, provider, str(error))
        raise
    begun = _Request(
        provider_id=provider.public_id,
        browser=_browser_digest(browser),
        nonce=secrets.token_urlsafe(32),
        code_verifier=secrets.token_urlsafe(32),
        began_at=clock.now().timestamp(),
        parameters=dict(parameters),
        must_be_fresh=prompt == "login",
        linking_user=public_id("usr", linking_user) if linking_user is not None else None,
    )
    return authorization_url(
        metadata,
        client_id=provider.client_id,
        redirect_uri=provider.redirect_uri,
        scopes=provider.scopes,
        state=_seal(organization, begun),
        nonce=begun.nonce,
        code_verifier=begun.code_verifier,
        login_hint=login_hint,
        prompt=prompt,
    )


def complete_provider_sign_in(
    actor: Actor,
    organization: OrganizationSnapshot,
    provider_slug: str,
    answer: ProviderAnswer,
    browser: Browser,
    *,
    own_actor: Actor | None,
) -> ProviderOutcome:
    """Sign in, or link, the user whom the provider's answer names.

    ``actor`` is the anonymous actor, ``own_actor`` the user signed in to this browser, who links an account. Call it
    outside of a transaction. Raises NotFound without such a provider unless this browser began there, TooManyRequests,
    and as ``accept_invitation``. Audit: as ``complete_first_factor``, ``accept_invitation``, ``apply_provider_groups``,
    ``user.registered``, ``identity.linked``, ``sign_in.failed``, ``identity_provider.failed``.
    """
    organization = get_organization_by_id(organization.id)
    begun = _open(organization, answer.state, browser)
    try:
        provider = _get_provider(organization, provider_slug)
    except NotFound:
        if begun is None:
            raise
        return ProviderOutcome(ProviderRefused("withdrawn"), begun.parameters, begun.linking_user is not None)
    if begun is None or begun.provider_id != provider.public_id:
        return ProviderOutcome(ProviderRefused("expired"), {})
    claim = rate_limits.require_attempt_allowed(
        organization.id,
        "Too many sign-ins from your network. Try again later.",
        *network_limits(_PER_NETWORK, actor.ip_address, _PURPOSE),
    )
    result = _complete(actor, organization, provider, begun, answer, browser, own_actor)
    if not isinstance(result, ProviderRefused):
        rate_limits.withdraw_attempts(organization.id, claim.attempts)
    return ProviderOutcome(result, begun.parameters, begun.linking_user is not None)


def _complete(
    actor: Actor,
    organization: OrganizationSnapshot,
    provider: IdentityProviderRecord,
    begun: _Request,
    answer: ProviderAnswer,
    browser: Browser,
    own_actor: Actor | None,
) -> SignedIn | SecondStepRequired | ProviderRefused | None:
    expires_at = clock.now() + REQUEST_LIFETIME
    if not idempotency.claim(organization.id, _PURPOSE, "", begun.nonce, expires_at=expires_at):
        return ProviderRefused("expired")
    if answer.error:
        if answer.error in {"access_denied", "login_required", "interaction_required"}:
            return ProviderRefused("cancelled")
        error = f"the error '{answer.error}'" if is_error_code(answer.error) else "an unknown error"
        _record_defect(actor, provider, f"the user's browser returned with {error}")
        return ProviderRefused("failed")
    try:
        identity = redeem_answer(
            provider,
            answer,
            nonce=begun.nonce,
            code_verifier=begun.code_verifier,
            groups_claim=provider.groups_claim
            if begun.linking_user is None and needs_groups(provider)
            else None,
        )
    except (ProviderUnusable, OutgoingRequestFailed, OutgoingRequestBlocked, ProviderTokenInvalid) as error:
        _record_defect(actor, provider, str(error))
        return ProviderRefused("failed")
    except Conflict as error:
        return _refused(error)
    if begun.must_be_fresh and not _is_fresh(identity, begun):
        return ProviderRefused("not_fresh")
    if begun.linking_user is not None:
        own_id = own_actor.user_id if own_actor is not None else None
        if own_actor is None or own_id is None or begun.linking_user != public_id("usr", own_id):
            return ProviderRefused("expired")
        return _link(own_actor, provider, identity)
    arrival = _Arrival(actor, browser, organization, provider, begun, identity)
    if INVITATION in begun.parameters:
        return _accept_invitation(arrival)
    result = _sign_in(arrival)
    if isinstance(result, ProviderRefused):
        _record_failure(actor, provider, identity, result.reason)
    return result


def _get_provider(organization: OrganizationSnapshot, slug: str) -> IdentityProviderRecord:
    provider = find_enabled_provider(organization.id, slug) if organization.is_active else None
    if provider is None:
        raise NotFound("There is no such identity provider.")
    return provider


def _is_fresh(identity: ProviderIdentity, begun: _Request) -> bool:
    """Return whether the user signed in at the provider for this request. One that does not say is believed."""
    began_at = datetime.fromtimestamp(begun.began_at, UTC)
    return identity.authenticated_at is None or identity.authenticated_at >= began_at - LEEWAY


def _refused(error: Conflict) -> ProviderRefused:
    reason = _CONFLICTS.get(error.code)
    if reason is None:
        raise error
    return ProviderRefused(reason)


@transaction
def _link(
    actor: Actor, provider: IdentityProviderRecord, identity: ProviderIdentity
) -> ProviderRefused | None:
    try:
        link_identity(actor, provider, get_user(actor.organization_id, actor.require_own_account()), identity)
    except Conflict as error:
        return _refused(error)
    require_active_session(actor)
    return None


@transaction
def _accept_invitation(arrival: _Arrival) -> SignedIn | SecondStepRequired | ProviderRefused:
    """Create the invited user, who signs in with this account from now on, whatever its email."""
    identity, groups = arrival.identity, hold_provider_groups(arrival.provider)
    if find_identity(arrival.provider, identity.subject) is not None:
        return ProviderRefused("taken")
    token = arrival.begun.parameters[INVITATION]
    user_id = accept_invitation(token, name=_name_of(identity), password_hash=None)
    user = get_user(arrival.organization.id, user_id)
    link_identity(arrival.actor.as_user(user.id, user.email), arrival.provider, user, identity)
    return _complete_first_factor(arrival, user, groups)


def _name_of(identity: ProviderIdentity) -> str:
    """Return the name that the provider sends, or nothing if no user may have it."""
    return identity.name if text_problem(identity.name, max_length=MAX_NAME_LENGTH) is None else ""


def _sign_in(arrival: _Arrival, *, is_retry: bool = False) -> SignedIn | SecondStepRequired | ProviderRefused:
    try:
        return _sign_in_or_create(arrival)
    except Conflict as error:
        if is_retry:
            return _refused(error)
    # Another request may have created or linked the user at the same moment.
    return _sign_in(arrival, is_retry=True)


@transaction
def _sign_in_or_create(arrival: _Arrival) -> SignedIn | SecondStepRequired | ProviderRefused:
    organization, provider, identity = arrival.organization, arrival.provider, arrival.identity
    groups = hold_provider_groups(provider)
    linked = find_identity(provider, identity.subject)
    user = _user_of(arrival, linked)
    if isinstance(user, ProviderRefused):
        return user
    if linked is None:
        link_identity(arrival.actor.as_user(user.id, user.email), provider, user, identity)
    else:
        hold_user(organization.id, user.id)
        hold_provider(provider)
        if not record_use(linked, organization.id, identity.email):
            return ProviderRefused("no_account")
    _confirm_email(arrival, user)
    return _complete_first_factor(arrival, user, groups)


def _confirm_email(arrival: _Arrival, user: UserSnapshot) -> None:
    """Mark the email of a user whom the provider manages, and who is held, as verified if the provider says so.

    Not if the user changed since they were read, as another email needs another confirmation.
    """
    identity = arrival.identity
    is_same = canonical_email(identity.email or "") == user.email_canonical
    if user.email_verified or not (is_same and identity.email_verified):
        return
    if find_managing_provider(user.organization_id, user.id) != arrival.provider.id:
        return
    is_unchanged = User.version == user.version
    if update_user_row(user.organization_id, user.id, is_unchanged, email_verified=True):
        actor = arrival.actor.as_user(user.id, user.email)
        audit.record_user_event(actor, "user.email_verified", user.id, after={"email": user.email_canonical})


def _complete_first_factor(
    arrival: _Arrival, user: UserSnapshot, groups: ProviderGroups
) -> SignedIn | SecondStepRequired:
    identity = arrival.identity
    if identity.groups is not None:
        system = arrival.actor.as_system(arrival.provider.name)
        apply_provider_groups(system, user, groups, identity.groups)
    return complete_first_factor(
        arrival.actor,
        arrival.organization,
        user.id,
        amr=(AMR,),
        browser=arrival.browser,
        provider=ProviderSession(
            arrival.provider.id,
            identity.sid,
            clock.now() if arrival.begun.must_be_fresh else identity.authenticated_at,
        ),
    )


def _user_of(arrival: _Arrival, linked: LinkedIdentityRecord | None) -> UserSnapshot | ProviderRefused:
    """Return the user to sign in: the linked one, one that the provider manages, who has the email, or a new one.

    An email that is not verified on both sides never links: whoever typed it first could read what belongs to another.
    Nor does that of a user with more permissions than every member: whoever may change settings could define a provider
    that signs them in as an administrator (TN-11). Such users link their account themselves.
    """
    organization, provider, identity = arrival.organization, arrival.provider, arrival.identity
    if linked is not None:
        user = get_user(organization.id, linked.user_id)
        return user if user.status == ACTIVE else ProviderRefused("disabled")
    managed = find_managed_user(
        organization.id,
        provider.id,
        subject=identity.subject,
        email=identity.email if identity.email_verified else None,
    )
    if managed is not None:
        if has_special_role(managed):
            return ProviderRefused("exists")
        return managed if managed.status == ACTIVE else ProviderRefused("disabled")
    if not provider.link_users and not provider.create_users:
        return ProviderRefused("no_account")
    if identity.email is None or not identity.email_verified:
        return ProviderRefused("email_unverified")
    existing = find_user_by_email(organization.id, identity.email)
    if existing is not None:
        if not provider.link_users or not existing.email_verified or has_special_role(existing):
            return ProviderRefused("exists")
        return existing if existing.status == ACTIVE else ProviderRefused("disabled")
    if not provider.create_users:
        return ProviderRefused("no_account")
    if not is_domain_allowed(identity.email, organization.settings):
        return ProviderRefused("domain")
    user_id = create_registered_user(
        arrival.actor.as_system(identity.email),
        organization,
        email=identity.email,
        name=_name_of(identity),
        password_hash=None,
        email_verified=True,
    )
    return get_user(organization.id, user_id)


@transaction
def _record_defect(actor: Actor, provider: IdentityProviderRecord, problem: str) -> None:
    """Record for the administrators why nobody could be signed in: the user can do nothing about it."""
    _log.warning("a sign-in with identity provider %s failed: %s", provider.public_id, problem)
    audit.record(
        actor, "identity_provider.failed", "identity_provider", provider.public_id, after={"problem": problem}
    )


@transaction
def _record_failure(
    actor: Actor, provider: IdentityProviderRecord, identity: ProviderIdentity, reason: ProviderRefusalReason
) -> None:
    linked = find_identity(provider, identity.subject)
    after = {
        "email": canonical_email(identity.email or ""),
        "reason": reason,
        "provider": provider.public_id,
    }
    target = None if linked is None else public_id("usr", linked.user_id)
    audit.record(actor, "sign_in.failed", "user", target, after=after)


def _seal(organization: OrganizationSnapshot, begun: _Request) -> str:
    sealed = keyring.seal(organization.id, msgspec.json.encode(begun), _PURPOSE)
    return urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _open(organization: OrganizationSnapshot, state: str, browser: Browser) -> _Request | None:
    """Return the request of a state that was sealed here for this browser and has not expired, or None."""
    try:
        content = keyring.unseal(organization.id, decode_base64url(state), _PURPOSE)
        begun = msgspec.json.decode(content, type=_Request)
    except (UnsealError, ValueError):
        return None
    began_at = datetime.fromtimestamp(begun.began_at, UTC)
    is_over = organization.is_before_restore(began_at) or clock.now() - began_at > REQUEST_LIFETIME
    return None if is_over or begun.browser != _browser_digest(browser) else begun


def _browser_digest(browser: Browser) -> str:
    return hashlib.sha256(browser.id.encode()).hexdigest()
