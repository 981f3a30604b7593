"""Authorization codes: issued to a browser, redeemed once by the client that they were issued to."""

from __future__ import annotations

import hmac
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, select, update

from app.fast_path.compiled_query import CompiledQuery, insert_into
from app.models import user as user_model
from app.models.base import has_key, is_same
from app.models.grant import AuthorizationCode, Consent
from app.models.session import Session
from app.models.user import User
from app.operations.authorization import consents
from app.operations.directory.snapshots import (
    AuthenticatedClient,
    ClientSnapshot,
    OrganizationSnapshot,
    is_before_cutoff,
)
from app.operations.directory.users import USER_COLUMNS, snapshot_of
from app.operations.grants import grants
from app.operations.store import audit, clock
from app.operations.store.transactions import current_unit_of_work
from app.operations.tokens import access_tokens
from app.rules.actor import Actor
from app.rules.authorization import authorization_request
from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.clients.redirect_uris import match_redirect_uri
from app.rules.errors import InvalidGrant
from app.rules.identifiers import (
    AUTHORIZATION_CODE,
    digest,
    format_client_id,
    is_token_of,
    new_id,
    new_token,
    public_id,
)
from app.rules.organizations.settings import earliest_expiry

RETENTION_AFTER_USE = timedelta(days=1)
_INSERT = CompiledQuery(insert_into(AuthorizationCode))
_FIND = CompiledQuery(
    select(
        AuthorizationCode.__table__,
        User.status.label("user_status"),
        User.tokens_not_before.label("user_not_before"),
        Session.id.label("active_session"),
        Consent.scope.label("consented"),
        grants.find_surplus_of(AuthorizationCode).label("surplus_grant"),
        *USER_COLUMNS,
    )
    .join(User, is_same(User.id, AuthorizationCode.user_id))
    .outerjoin(
        Session,
        (Session.organization_id == AuthorizationCode.organization_id)
        & (Session.id == AuthorizationCode.session_id)
        & Session.revoked_at.is_(None),
    )
    .outerjoin(
        Consent,
        is_same(Consent.user_id, AuthorizationCode.user_id)
        & (Consent.client_id == AuthorizationCode.client_id),
    )
    .where(
        AuthorizationCode.organization_id == bindparam("organization_id"),
        AuthorizationCode.digest == bindparam("digest"),
    )
)
# Single use: of all requests that read the code as unused, only one finds it unused here.
_CLAIM = CompiledQuery(
    update(AuthorizationCode)
    .where(
        has_key(AuthorizationCode, bindparam("of_organization"), bindparam("of_code")),
        AuthorizationCode.used_at.is_(None),
        AuthorizationCode.expires_at > bindparam("now", type_=AuthorizationCode.expires_at.type),
    )
    .values(used_at=bindparam("used_at"), attempt=bindparam("attempt"))
)


class ReplayedCode(Struct, frozen=True):
    """A client used its code a second time: everything issued from it was revoked (RFC 6749 section 4.1.2)."""


def generate_code(organization: OrganizationSnapshot) -> str:
    """Return a random code that names its organization."""
    return new_token(AUTHORIZATION_CODE, organization.id)


def add_code(
    actor: Actor,
    client: ClientSnapshot,
    parameters: AuthorizationParameters,
    code: str,
    *,
    scopes: tuple[str, ...],
    user_id: UUID,
    session_id: UUID | None,
    auth_time: Any,
    amr: str,
    acr: str | None,
    ends_at: datetime | None = None,
) -> None:
    """Store a code for what the user allowed, in the current transaction.

    ``ends_at`` is when the consent expires; nothing that the code issues is valid after that.
    """
    now = clock.now()
    lifetime = timedelta(seconds=client.organization.settings["oauth"]["authorization_code_ttl_seconds"])
    _INSERT.write_later(
        organization_id=actor.organization_id,
        id=new_id(),
        digest=digest(code),
        client_id=client.id,
        user_id=user_id,
        session_id=session_id,
        grant_id=new_id(),
        redirect_uri=parameters.redirect_uri,
        scope=" ".join(scopes),
        nonce=parameters.nonce,
        code_challenge=parameters.code_challenge,
        auth_time=auth_time,
        amr=amr,
        acr=acr,
        resource=" ".join(parameters.resources),
        claims=parameters.claims,
        dpop_jkt=parameters.dpop_jkt,
        issued_at=now,
        expires_at=now + lifetime if ends_at is None else min(now + lifetime, ends_at),
        grant_ends_at=ends_at,
        purge_at=now + lifetime + RETENTION_AFTER_USE,
    )


def find_code(authenticated: AuthenticatedClient, code: str, redirect_uri: str | None) -> Any:
    """Return the row of a code that was issued to the client for ``redirect_uri``, whether used or not.

    Raises InvalidGrant; the code stays unspent (CD-6).
    """
    client = authenticated.client
    if not is_token_of(code, AUTHORIZATION_CODE, client.organization.id):
        raise InvalidGrant().with_cause("code_unknown")
    row = _find(client.organization.id, digest(code))
    if row is None or row.client_id != client.id:
        raise InvalidGrant().with_cause("code_unknown")
    if not _is_same(redirect_uri, row.redirect_uri) or not _may_redeem(authenticated, row.redirect_uri):
        raise InvalidGrant("The redirect_uri is not the one that the code was issued for.").with_cause(
            "redirect_uri_mismatch", received=redirect_uri, expected=row.redirect_uri
        )
    return row


def _find(organization_id: str, code_digest: bytes) -> Any:
    return _FIND.first(
        organization_id=organization_id,
        digest=code_digest,
        now=clock.now(),
        most=grants.MAX_ACTIVE_GRANTS - 1,
    )


def require_verifier(client: ClientSnapshot, row: Any, code_verifier: str | None) -> None:
    """Raise InvalidGrant unless the verifier matches the code's challenge, or both are missing and may be.

    A verifier for a code without a challenge is rejected: the challenge may have been removed on its way here (RFC 7636
    section 4.6, RFC 9700 section 4.8.2). The policy is the client's now, so a stricter one applies at once.
    """
    if row.code_challenge is None:
        if code_verifier is not None:
            raise InvalidGrant(
                "A code_verifier was sent, but the authorization request had no code_challenge."
            ).with_cause("verifier_unexpected")
        is_protected = authorization_request.is_code_protected(
            client.code_protection, has_challenge=False, nonce=row.nonce, scopes=row.scope.split()
        )
        if not is_protected:
            raise InvalidGrant("The code was issued without PKCE, which the client now needs.").with_cause(
                "pkce_missing"
            )
    elif code_verifier is not None and not authorization_request.is_verifier(code_verifier):
        raise InvalidGrant(
            "The code_verifier is malformed. Send 43 to 128 letters, digits or the characters -._~ (RFC 7636)."
        ).with_cause("verifier_malformed", received=f"{len(code_verifier)} characters")
    elif not authorization_request.is_verified(code_verifier, row.code_challenge):
        raise InvalidGrant("The code_verifier is missing or does not match the code_challenge.").with_cause(
            "verifier_mismatch",
            received="no code_verifier" if code_verifier is None else "another code_verifier",
        )


def claim_code(
    actor: Actor, authenticated: AuthenticatedClient, row: Any, resources: tuple[str, ...]
) -> grants.ClaimedGrant | ReplayedCode:
    """Claim a code for the current transaction, which must also store the tokens (CD-5).

    ``resources`` are those that the client requests for this token (RFC 8707). A second use revokes everything that
    the first one issued: commit the transaction on ``Replayed``. Raises InvalidGrant, which leaves the code unspent,
    if the DPoP key is wrong or anything that the code depends on was revoked (CD-8).
    Audit: ``code.replayed``.
    """
    client = authenticated.client
    unit_of_work = current_unit_of_work()
    if row.dpop_jkt is not None and row.dpop_jkt != authenticated.dpop_jkt:
        # RFC 9449 section 10: a stolen code is useless without the key.
        message = (
            "The code is bound to a different key than the one of the DPoP proof."
            if authenticated.dpop_jkt
            else "The code is bound to a key. Send a DPoP proof with that key."
        )
        raise InvalidGrant(message).with_cause(
            "dpop_wrong_key" if authenticated.dpop_jkt else "dpop_missing",
            received=authenticated.dpop_jkt,
            expected=row.dpop_jkt,
        )
    if row.used_at is not None:
        return _claimed_before(actor, client, row, resources)
    _require_valid(client, row)
    grant = _grant_of(client, row, resources)
    if not grant.scopes:
        raise InvalidGrant().with_cause("grant_ended", received="the client no longer has any of the scopes")
    # What the playground tries without the approval that the client needs has no consent.
    is_trial = authenticated.playground_uri is not None
    if not is_trial and consents.is_consent_withdrawn(client, grant, row.consented):
        raise InvalidGrant().with_cause("grant_ended", received="the consent was withdrawn meanwhile")
    claimed = _CLAIM.write(
        of_organization=client.organization.id,
        of_code=row.id,
        now=clock.now(),
        used_at=clock.now(),
        attempt=unit_of_work.nonce,
    )
    if claimed == 1:
        return grants.ClaimedGrant(grant)
    # Another request was faster, or the code expired between the two statements: the row now says which.
    row = _find(client.organization.id, row.digest)
    if row is None or row.used_at is None:
        raise InvalidGrant().with_cause("code_expired")
    return _claimed_before(actor, client, row, resources)


def _claimed_before(
    actor: Actor, client: ClientSnapshot, row: Any, resources: tuple[str, ...]
) -> grants.ClaimedGrant | ReplayedCode:
    if row.attempt == current_unit_of_work().nonce:
        # An earlier attempt of this very transaction claimed it, and the response to its COMMIT was lost.
        return grants.ClaimedGrant(_grant_of(client, row, resources), is_stored=True)
    # A node that lags behind may show a used code as unused, which the claim then finds out, but never the reverse:
    # no statement makes a code unused again.
    if grants.revoke_grant_by_id(actor, row.grant_id, reason="code_replayed"):
        audit.record(
            actor,
            "code.replayed",
            "client",
            format_client_id(actor.organization_id, row.client_id),
            after={"user": public_id("usr", row.user_id), "revoked_grant": public_id("grt", row.grant_id)},
        )
    return ReplayedCode()


def _grant_of(client: ClientSnapshot, row: Any, resources: tuple[str, ...]) -> grants.NewGrant:
    return grants.NewGrant(
        id=row.grant_id,
        user_id=row.user_id,
        session_id=row.session_id,
        scopes=access_tokens.remaining_scopes(client, row.scope, row.issued_at),
        auth_time=row.auth_time,
        amr=row.amr,
        allowed_at=row.issued_at,
        acr=row.acr,
        resources=tuple(row.resource.split()),
        requested_resources=resources,
        claims=authorization_request.restrict_to_scopes(row.claims, client.document["scopes"]),
        nonce=row.nonce,
        expires_at=row.grant_ends_at,
        user=snapshot_of(row),
        has_room=row.surplus_grant is None,
    )


def _require_valid(client: ClientSnapshot, row: Any) -> None:
    now = clock.now()
    is_cut_off = client.invalidates_grant(row.issued_at, row.auth_time, None)
    seconds = client.organization.settings["oauth"]["authorization_code_ttl_seconds"]
    expires_at = earliest_expiry(row.expires_at, row.issued_at, seconds)
    if expires_at <= now or is_cut_off or is_before_cutoff(row.issued_at, row.user_not_before):
        raise InvalidGrant("The code has expired or was revoked.").with_cause(
            "code_expired",
            received=f"{int((now - row.issued_at).total_seconds())} s after it was issued",
            expected=f"at most {int((expires_at - row.issued_at).total_seconds())} s",
        )
    if row.user_status != user_model.ACTIVE:
        raise InvalidGrant().with_cause("grant_ended", received="the account is not active")
    if row.session_id is not None and row.active_session is None:
        raise InvalidGrant().with_cause("grant_ended", received="the user signed out meanwhile")
    if row.password_changed_at is not None and row.password_changed_at > row.issued_at:
        raise InvalidGrant().with_cause("grant_ended", received="the password was changed meanwhile")


def _is_same(sent: str | None, stored: str) -> bool:
    return sent is not None and hmac.compare_digest(sent.encode(), stored.encode())


def _may_redeem(authenticated: AuthenticatedClient, redirect_uri: str) -> bool:
    """Return whether the caller may redeem codes for this URI: the playground those of its own, and no other."""
    if authenticated.playground_uri is not None:
        return _is_same(redirect_uri, authenticated.playground_uri)
    return _is_registered(authenticated.client, redirect_uri)


def _is_registered(client: ClientSnapshot, redirect_uri: str) -> bool:
    # The redirect URI may have been removed since the authorization request (RU-5).
    return (
        match_redirect_uri(redirect_uri, client.document["redirect_uris"], client_type=client.type)
        is not None
    )
