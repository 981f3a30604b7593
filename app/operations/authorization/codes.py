"""Authorization codes: issued to the browser, redeemed once by the client they were issued to."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, select, update

from app.fast_path.compiled_query import CompiledQuery, insert_into
from app.models import user as user_model
from app.models.grant import AuthorizationCode
from app.models.session import Session
from app.models.user import User
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot
from app.operations.directory.snapshots import is_before_cutoff
from app.operations.grants import grants
from app.operations.store import audit, clock
from app.operations.store.transactions import UnitOfWork, current_unit_of_work, transaction
from app.operations.tokens.access_tokens import TokenAnswer
from app.rules.actor import Actor
from app.rules.authorization import authorization_request
from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.clients.redirect_uris import match_redirect_uri
from app.rules.identifiers import format_client_id, new_id, public_id
from app.rules.oauth_errors import InvalidGrant
from app.rules.organizations.settings_effects import earliest_expiry
from app.rules.scopes import restrict_scopes
from app.rules.token_values import AUTHORIZATION_CODE, digest, new_token, parse_token

KEPT_AFTER_USE = timedelta(days=1)


_INSERT = CompiledQuery(insert_into(AuthorizationCode))
_FIND = CompiledQuery(
    select(
        AuthorizationCode.__table__,
        User.status.label("user_status"),
        User.password_changed_at,
        User.tokens_not_before.label("user_not_before"),
        Session.id.label("living_session"),
    )
    .join(
        User,
        (User.organization_id == AuthorizationCode.organization_id) & (User.id == AuthorizationCode.user_id),
    )
    .outerjoin(
        Session,
        (Session.organization_id == AuthorizationCode.organization_id)
        & (Session.id == AuthorizationCode.session_id)
        & Session.revoked_at.is_(None),
    )
    .where(
        AuthorizationCode.organization_id == bindparam("organization_id"),
        AuthorizationCode.digest == bindparam("digest"),
    )
)
# Single use: of all that read it unused, one finds it so (law 8).
_CLAIM = CompiledQuery(
    update(AuthorizationCode)
    .where(
        AuthorizationCode.organization_id == bindparam("of_organization"),
        AuthorizationCode.id == bindparam("of_code"),
        AuthorizationCode.used_at.is_(None),
        AuthorizationCode.expires_at > bindparam("now", type_=AuthorizationCode.expires_at.type),
    )
    .values(used_at=bindparam("used_at"), attempt=bindparam("attempt"))
)


@dataclass(frozen=True, slots=True)
class PresentedCode:
    """What a client sends to redeem a code (RFC 6749 section 4.1.3, RFC 7636 section 4.5)."""

    code: str
    redirect_uri: str | None
    code_verifier: str | None
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """A code was used a second time by its own client: all that it gave is revoked (RFC 6749 section 4.1.2)."""


def add_code(
    actor: Actor,
    client: ClientSnapshot,
    parameters: AuthorizationParameters,
    *,
    scopes: tuple[str, ...],
    user_id: UUID,
    session_id: UUID | None,
    auth_time: Any,
    amr: str,
    acr: str | None,
    ends_at: datetime | None = None,
) -> str:
    """A fresh code for what the user allowed; part of the transaction under way. Returns its clear value.

    ``ends_at`` is when the consent ends: neither the code nor anything that it gives is alive after that.
    """
    code = current_unit_of_work().stable_value(
        "code", lambda: new_token(AUTHORIZATION_CODE, client.organization.id)
    )
    now = clock.now()
    lifetime = timedelta(seconds=client.organization.settings["oauth"]["authorization_code_ttl_seconds"])
    _INSERT.write(
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
        purge_at=now + lifetime + KEPT_AFTER_USE,
    )
    return code


def redeem_code(
    authenticated: AuthenticatedClient,
    presented: PresentedCode,
    *,
    address: str | None,
    request_id: str | None,
) -> TokenAnswer | Replayed:
    """Tokens for the code, which is spent. Claim, grant, tokens and audit are one commit (CD-5).

    Raises InvalidGrant, and the code stays unspent, when the client, redirect URI or verifier is wrong (CD-6) or
    anything it rests on has ended (CD-8). Audit: ``grant.created``,
    ``code.replayed``.
    """
    grants.ensure_signing_keys(authenticated.client)
    return _redeem(authenticated, presented, address, request_id)


@transaction
def _redeem(
    authenticated: AuthenticatedClient, presented: PresentedCode, address: str | None, request_id: str | None
) -> TokenAnswer | Replayed:
    client = authenticated.client
    actor = grants.client_actor(client, address, request_id)
    row = _find_valid(authenticated, presented)
    unit = current_unit_of_work()
    if row.used_at is not None:
        return _own_answer(unit, row) or _second_use(actor, row)
    # Taken from the client since: it is not handed out any more.
    scopes = restrict_scopes(row.scope.split(), client.document["scopes"])
    if not scopes:
        raise InvalidGrant().with_cause("grant_ended", received="none of the scopes is the client's any more")
    claimed = _CLAIM.write(
        of_organization=client.organization.id,
        of_code=row.id,
        now=clock.now(),
        used_at=clock.now(),
        attempt=unit.nonce,
    )
    if claimed != 1:
        # Somebody was faster, or the code ended between the two statements; which one, the row says now.
        row = _find_valid(authenticated, presented)
        if row.used_at is None:
            raise InvalidGrant().with_cause("code_expired")
        return _own_answer(unit, row) or _second_use(actor, row)
    answer = unit.values["answer"] = grants.create_grant(
        actor,
        authenticated,
        grants.NewGrant(
            id=row.grant_id,
            user_id=row.user_id,
            session_id=row.session_id,
            scopes=scopes,
            auth_time=row.auth_time,
            amr=row.amr,
            allowed_at=row.issued_at,
            acr=row.acr,
            resources=tuple(row.resource.split()),
            requested_resources=presented.resources,
            claims=row.claims,
            nonce=row.nonce,
            expires_at=row.grant_ends_at,
        ),
    )
    return answer


def _find_valid(authenticated: AuthenticatedClient, presented: PresentedCode) -> Any:
    client = authenticated.client
    parsed = parse_token(presented.code)
    if (
        parsed is None
        or parsed.kind != AUTHORIZATION_CODE
        or parsed.organization_id != client.organization.id
    ):
        raise InvalidGrant().with_cause("code_unknown")
    row = _FIND.first(organization_id=client.organization.id, digest=digest(presented.code))
    if row is None or row.client_id != client.id:
        raise InvalidGrant().with_cause("code_unknown")
    if not _is_same(presented.redirect_uri, row.redirect_uri) or not _is_registered(client, row.redirect_uri):
        raise InvalidGrant("The redirect_uri is not the one that the code was issued for.").with_cause(
            "redirect_uri_mismatch", received=presented.redirect_uri, expected=row.redirect_uri
        )
    if not authorization_request.is_verified(presented.code_verifier, row.code_challenge):
        raise InvalidGrant("The code_verifier is missing or does not match the code_challenge.").with_cause(
            "verifier_mismatch",
            received="no code_verifier" if presented.code_verifier is None else "another code_verifier",
        )
    if row.dpop_jkt is not None and row.dpop_jkt != authenticated.dpop_jkt:
        # RFC 9449 section 10: whoever took the code on its way does not hold the key.
        raise InvalidGrant("The code is bound to another key than the one of the DPoP proof.").with_cause(
            "dpop_wrong_key" if authenticated.dpop_jkt else "dpop_missing",
            received=authenticated.dpop_jkt,
            expected=row.dpop_jkt,
        )
    if row.used_at is None:
        _require_alive(client, row)
    return row


def _require_alive(client: ClientSnapshot, row: Any) -> None:
    now = clock.now()
    is_forgotten = client.invalidates_grant(row.issued_at, row.auth_time, None)
    seconds = client.organization.settings["oauth"]["authorization_code_ttl_seconds"]
    ends = earliest_expiry(row.expires_at, row.issued_at, seconds)
    if ends <= now or is_forgotten or is_before_cutoff(row.issued_at, row.user_not_before):
        raise InvalidGrant("The code has ended.").with_cause(
            "code_expired",
            received=f"{int((now - row.issued_at).total_seconds())} s after it was issued",
            expected=f"at most {int((ends - row.issued_at).total_seconds())} s",
        )
    if row.user_status != user_model.ACTIVE:
        raise InvalidGrant().with_cause("grant_ended", received="the account is not active")
    if row.session_id is not None and row.living_session is None:
        raise InvalidGrant().with_cause("grant_ended", received="the person signed out meanwhile")
    if row.password_changed_at is not None and row.password_changed_at > row.issued_at:
        raise InvalidGrant().with_cause("grant_ended", received="the password was changed meanwhile")


def _own_answer(unit: UnitOfWork, row: Any) -> TokenAnswer | None:
    # An earlier attempt of this very request claimed it, and the answer of its COMMIT was lost (scale.md rule 3).
    return unit.values.get("answer") if row.attempt == unit.nonce else None


def _second_use(actor: Actor, row: Any) -> Replayed:
    changed = grants.revoke_grant_by_id(actor, row.grant_id, reason="code_replayed")
    if changed:
        audit.record(
            actor,
            "code.replayed",
            target_type="client",
            target_id=format_client_id(actor.organization_id, row.client_id),
            after={"user": public_id("usr", row.user_id), "revoked_grant": public_id("grt", row.grant_id)},
        )
    return Replayed()


def _is_same(sent: str | None, stored: str) -> bool:
    return sent is not None and hmac.compare_digest(sent.encode(), stored.encode())


def _is_registered(client: ClientSnapshot, redirect_uri: str) -> bool:
    # Removed between request and redemption: the flow ends (RU-5).
    return (
        match_redirect_uri(redirect_uri, client.document["redirect_uris"], client_type=client.type)
        is not None
    )
