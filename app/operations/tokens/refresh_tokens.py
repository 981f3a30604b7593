"""Refresh tokens, rotated by one compare-and-set of the grant's row (RFC 9700 section 4.14.2)."""

from __future__ import annotations

import hmac
import json
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import Select, bindparam, select, update

from app.fast_path.compiled_query import CompiledQuery
from app.models import user as user_model
from app.models.base import has_key, is_same
from app.models.grant import Consent, Grant
from app.models.token import AccessToken
from app.models.user import User
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot, is_before_cutoff
from app.operations.directory.users import USER_COLUMNS, snapshot_of
from app.operations.grants import grants
from app.operations.grants.grants import CONSENT_OF_GRANT
from app.operations.mail.notices import notify_user
from app.operations.store import audit, clock, keyring, outages
from app.operations.store.transactions import (
    OutdatedRead,
    current_unit_of_work,
    verify_commit_with,
)
from app.operations.tokens import access_tokens, issuance
from app.operations.tokens.access_tokens import TokenResponse
from app.rules import sealing
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import restrict_to_scopes
from app.rules.authorization.consents import requires_user_consent
from app.rules.clients.client_coherence import rotates_refresh_tokens
from app.rules.errors import InvalidGrant, InvalidScope
from app.rules.identifiers import (
    REFRESH_TOKEN,
    digest,
    format_client_id,
    has_valid_tag,
    parse_token,
    public_id,
)
from app.rules.organizations.settings import grant_expiry, refresh_token_expiry
from app.rules.scopes import disallowed_scopes, is_subset

_FIND = CompiledQuery(
    select(
        Grant.__table__,
        User.status.label("user_status"),
        User.tokens_not_before.label("user_not_before"),
        Consent.id.label("consent_id"),
        *USER_COLUMNS,
    )
    .join(User, is_same(User.id, Grant.user_id))
    .outerjoin(Consent, CONSENT_OF_GRANT)
    .where(has_key(Grant, bindparam("organization_id"), bindparam("grant_id")))
)
# The compare-and-set: of all requests with the same refresh token, only one finds it current.
_CURRENT = update(Grant).where(
    has_key(Grant, bindparam("of_organization"), bindparam("of_grant")),
    Grant.refresh_digest == bindparam("current_digest"),
    Grant.revoked_at.is_(None),
)
# After a longer outage a repeated request counts as reuse.
MAX_ANSWER_AGE = timedelta(days=7)
_USED: dict[str, Any] = {name: bindparam(name) for name in ("idle_expires_at", "refreshed_at")}
# The token is used, so the one before it is not accepted again, even where this one stays.
_KEEP = CompiledQuery(_CURRENT.values(**_USED, previous_digest=None, sealed_answer=None))
_ROTATE = CompiledQuery(
    _CURRENT.values(
        **_USED,
        generation=Grant.generation + 1,
        refresh_digest=bindparam("refresh_digest"),
        previous_digest=bindparam("previous_digest"),
        rotated_at=bindparam("rotated_at"),
        sealed_answer=bindparam("sealed_answer"),
    )
)


class Reused(Struct, frozen=True):
    """A refresh token was used after its successor, or too late, so its grant was revoked (RF-4)."""


class RefreshCredential(Struct, frozen=True):
    """A refresh token that may be used. ``scopes`` are those that the client still has of the grant's.

    ``names_scopes`` is whether the request names some of them.
    ``earlier_answer`` is set for a repeated request within the grace period: it receives that response again (RF-3),
    after an outage with what remains of ``expires_in``.
    """

    row: Any
    grant: grants.NewGrant
    scopes: tuple[str, ...]
    presented: str
    earlier_answer: TokenResponse | None = None
    names_scopes: bool = False


def find_refresh_token(
    actor: Actor,
    authenticated: AuthenticatedClient,
    refresh_token: str,
    scopes: tuple[str, ...],
    resources: tuple[str, ...],
) -> RefreshCredential | Reused:
    """Return the client's valid refresh token, or revoke its grant on reuse; commit the transaction in both cases.

    ``scopes`` are those that the client requests (none means all, RFC 6749 section 6), ``resources`` those of the
    grant's that the access token is for (RFC 8707). Raises InvalidGrant, InvalidScope, OutdatedRead.
    Audit: ``refresh_token.reused``.
    """
    client = authenticated.client
    row = _find(authenticated, refresh_token)
    remaining = access_tokens.remaining_scopes(client, row.scope, row.allowed_at)
    allowed = access_tokens.accessible_scopes(client, remaining, is_consented=True)
    if not hmac.compare_digest(digest(refresh_token), row.refresh_digest):
        answer = _earlier_answer(client, row, refresh_token)
        if answer is None:
            return _reuse(actor, row)
        return RefreshCredential(
            row, _grant_of(client, row, remaining, resources), allowed, refresh_token, answer
        )
    if not is_subset(scopes, allowed):
        raise InvalidScope("The scope must not exceed what the user allowed.").with_cause(
            "scope_not_allowed" if is_subset(scopes, row.scope.split()) else "scope_beyond_token",
            received=" ".join(disallowed_scopes(scopes, allowed)),
            expected=allowed,
        )
    if not allowed:
        raise InvalidGrant().with_cause("grant_ended", received="the client no longer has any of the scopes")
    grant = _grant_of(client, row, remaining, resources)
    return RefreshCredential(row, grant, allowed, refresh_token, names_scopes=bool(scopes))


def prepare_refresh(
    authenticated: AuthenticatedClient, credential: RefreshCredential, scopes: tuple[str, ...]
) -> issuance.PreparedTokens:
    """Generate the next tokens of the grant without storing them. Raises InvalidTarget, InvalidScope.

    The ID token is part of them: the response is stored, sealed, in the same statement that rotates the token.
    """
    client, grant = authenticated.client, credential.grant
    unit_of_work = current_unit_of_work()
    rotates = rotates_refresh_tokens(
        client.document, client.organization.settings, bound=authenticated.dpop_jkt is not None
    )
    refresh_token = (
        unit_of_work.stable_value("refresh_token", lambda: grants.generate_refresh_token(client, grant.id))
        if rotates
        else None
    )
    prepared = issuance.prepare_tokens(
        authenticated, grant, scopes, refresh_token, needs_scope=credential.names_scopes
    )
    if "openid" not in scopes:
        return prepared
    access_token = prepared.answer.access_token
    # With fewer scopes than the grant, the ID token has fewer claims as well.
    narrowed = replace(grant, scopes=scopes)
    id_token = unit_of_work.stable_value(
        "id_token", lambda: issuance.sign_id_token(client, narrowed, access_token=access_token)
    )
    return replace(prepared, answer=replace(prepared.answer, id_token=id_token))


def rotate(
    authenticated: AuthenticatedClient, credential: RefreshCredential, prepared: issuance.PreparedTokens
) -> None:
    """Replace the refresh token by a compare-and-set of the grant's row, and store the new access token.

    Raises OutdatedRead if another request was faster.
    """
    client, row = authenticated.client, credential.row
    settings = client.organization.settings["oauth"]["refresh_token"]
    now = clock.now()
    claim: dict[str, Any] = {
        "of_organization": row.organization_id,
        "of_grant": row.id,
        "current_digest": row.refresh_digest,
        "idle_expires_at": min(row.expires_at, now + timedelta(seconds=settings["idle_ttl_seconds"])),
        "refreshed_at": now,
    }
    refresh_token = prepared.answer.refresh_token
    if refresh_token is None:
        changed = _KEEP.write(**claim)
    else:
        changed = _ROTATE.write(
            **claim,
            refresh_digest=digest(refresh_token),
            previous_digest=row.refresh_digest,
            rotated_at=now,
            sealed_answer=_seal(credential.presented, prepared.answer),
        )
    if changed != 1:
        raise OutdatedRead
    # After the compare-and-set: a row that refers to the grant would lock the grant's row before its update.
    issuance.store_access_token(authenticated, credential.grant, prepared)
    verify_commit_with(lambda: _select_proof(row, prepared, now))


def _select_proof(row: Any, prepared: issuance.PreparedTokens, now: datetime) -> Select[Any]:
    """Return the query that finds a row if the refresh was committed."""
    if prepared.access_token.is_stored:
        # The grant's row may have been rotated again by then; the access token's row is stable.
        return select(AccessToken.id).where(
            AccessToken.organization_id == row.organization_id,
            AccessToken.id == prepared.access_token.row["id"],
        )
    # Nobody has received the new refresh token yet. One that is kept can be used again.
    refresh_token = prepared.answer.refresh_token
    is_new = (
        Grant.refreshed_at == now if refresh_token is None else Grant.refresh_digest == digest(refresh_token)
    )
    return select(Grant.id).where(has_key(Grant, row.organization_id, row.id), is_new)


def _find(authenticated: AuthenticatedClient, refresh_token: str) -> Any:
    client = authenticated.client
    parsed = parse_token(refresh_token)
    if parsed is None or parsed.kind != REFRESH_TOKEN or parsed.organization_id != client.organization.id:
        raise InvalidGrant().with_cause("refresh_unknown")
    # A forged token that names a grant must not revoke it: only tokens that this service issued count as reuse.
    if not has_valid_tag(refresh_token, keyring.refresh_tag_key(client.organization.id)):
        raise InvalidGrant().with_cause("refresh_unknown")
    row = _FIND.first(organization_id=client.organization.id, grant_id=parsed.grant_id)
    if row is None or row.client_id != client.id or row.refresh_digest is None:
        raise InvalidGrant().with_cause("refresh_unknown")
    if row.dpop_jkt is not None and row.dpop_jkt != authenticated.dpop_jkt:
        # A public client has no credentials: its refresh token is bound to the key (RFC 9449 section 5, RF-6).
        message = (
            "The refresh token is bound to another key than the one of the DPoP proof."
            if authenticated.dpop_jkt
            else "The refresh token is bound to a key. Send a DPoP proof with that key."
        )
        raise InvalidGrant(message).with_cause(
            "dpop_wrong_key" if authenticated.dpop_jkt else "dpop_missing",
            received=authenticated.dpop_jkt,
            expected=row.dpop_jkt,
        )
    refusal = refusal_of_grant(client, row)
    if refusal is not None:
        raise refusal
    return row


def refusal_of_grant(client: ClientSnapshot, row: Any) -> InvalidGrant | None:
    """Return why the grant's refresh token is not valid any more, or None if it is.

    ``row`` has the grant's columns, ``consent_id``, and of the user ``user_status`` and ``user_not_before``.
    """
    if row.revoked_at is not None:
        return InvalidGrant().with_cause("grant_ended", received=f"revoked: {row.revoked_reason}")
    if end_of_grant(client, row) <= clock.now():
        return InvalidGrant().with_cause("refresh_expired")
    if "offline_access" in disallowed_scopes(row.scope.split(), client.document["scopes"]):
        return InvalidGrant().with_cause("grant_ended", received="the client no longer has offline_access")
    if row.user_status != user_model.ACTIVE:
        return InvalidGrant().with_cause("grant_ended")
    is_cut_off = client.invalidates_grant(row.allowed_at, row.auth_time, row.credential_id)
    if is_cut_off or is_before_cutoff(row.allowed_at, row.user_not_before):
        return InvalidGrant().with_cause(
            "grant_ended", received="revoked with its secret, client, user or organization"
        )
    return None


def end_of_grant(client: ClientSnapshot, row: Any) -> datetime:
    """Return when the family expires under the current settings; use does not revive one that they ended."""
    return refresh_token_expiry(
        client.organization.settings,
        created_at=row.created_at,
        expires_at=row.expires_at,
        refreshed_at=row.refreshed_at,
        idle_expires_at=row.idle_expires_at,
        allowed_at=row.allowed_at,
        is_consented=_is_consented(client, row),
    )


def _is_consented(client: ClientSnapshot, row: Any) -> bool:
    return row.consent_id is not None and requires_user_consent(client.trust, client.organization.settings)


def _grant_of(
    client: ClientSnapshot, row: Any, scopes: tuple[str, ...], resources: tuple[str, ...]
) -> grants.NewGrant:
    return grants.NewGrant(
        row.id,
        row.user_id,
        row.session_id,
        scopes,
        row.auth_time,
        row.amr,
        row.allowed_at,
        acr=row.acr,
        resources=tuple(row.resource.split()),
        requested_resources=resources,
        claims=restrict_to_scopes(row.claims, client.document["scopes"]),
        expires_at=grant_expiry(
            client.organization.settings,
            expires_at=row.expires_at,
            allowed_at=row.allowed_at,
            is_consented=_is_consented(client, row),
        ),
        user=snapshot_of(row),
    )


def _earlier_answer(client: ClientSnapshot, row: Any, presented: str) -> TokenResponse | None:
    """Return the response to the first use, during the grace period and while its successor is unused.

    An outage does not use up the grace period: a client whose response it lost can only retry afterwards. Raises
    InvalidGrant for a use in the future.
    """
    if row.previous_digest is None or not hmac.compare_digest(digest(presented), row.previous_digest):
        return None
    grace = timedelta(seconds=client.organization.settings["oauth"]["refresh_token"]["reuse_grace_seconds"])
    age = clock.now() - row.rotated_at
    if row.sealed_answer is None or age > MAX_ANSWER_AGE:
        return None
    if age < -clock.MAX_ERROR:
        # It was used while the database's clock was ahead, nobody knows how long ago. That may be an honest retry.
        raise InvalidGrant().with_cause("refresh_unknown", received="used while the clock was ahead")
    if age > grace and age - outages.unreachable_since(row.rotated_at) > grace:
        return None
    answer = TokenResponse(**json.loads(sealing.unseal(_key(presented), row.sealed_answer, row.id.bytes)))
    if age <= grace:
        return answer
    # The access token may have expired during the outage: the client uses the refresh token at once then.
    return replace(answer, expires_in=max(0, answer.expires_in - int(age.total_seconds())))


def _reuse(actor: Actor, row: Any) -> Reused:
    # A node that lags behind would take the successor for an unknown predecessor: the row that this changes decides.
    grants.revoke_unrotated_grant(actor, row.id, row.refresh_digest, reason="refresh_token_reused")
    audit.record(
        actor,
        "refresh_token.reused",
        "client",
        format_client_id(actor.organization_id, row.client_id),
        after={"user": public_id("usr", row.user_id), "revoked_grant": public_id("grt", row.id)},
    )
    notify_user(actor, row.user_id, "refresh_token_reused")
    return Reused()


def _seal(presented: str, answer: TokenResponse) -> bytes:
    """Seal the response under the presented token, so that a database dump cannot open it (RF-3)."""
    parsed = parse_token(presented)
    if parsed is None or parsed.grant_id is None:
        raise InvalidGrant
    return sealing.seal(_key(presented), json.dumps(asdict(answer)).encode(), parsed.grant_id.bytes)


def _key(presented: str) -> bytes:
    return sealing.derive(presented.encode(), "gatehouse refresh answer")
