"""Refresh tokens: rotated by one compare-and-set of the grant row (RFC 9700 section 4.14.2, scale.md rule 2)."""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select, update

from app.fast_path.compiled_query import CompiledQuery
from app.models import user as user_model
from app.models.grant import Consent, Grant
from app.models.token import AccessToken
from app.models.user import User
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot
from app.operations.directory.snapshots import is_before_cutoff
from app.operations.grants import grants
from app.operations.grants.grants import CONSENT_OF_GRANT
from app.operations.mail.notices import notify_user
from app.operations.store import audit, clock, keyring
from app.operations.store.transactions import current_unit_of_work, transaction, verify_commit_with
from app.operations.tokens.access_tokens import TokenAnswer
from app.rules import sealing
from app.rules.actor import Actor
from app.rules.authorization.consents import asks_people
from app.rules.clients.client_requirements import rotates_refresh_tokens
from app.rules.identifiers import format_client_id, public_id
from app.rules.oauth_errors import InvalidGrant, InvalidScope
from app.rules.organizations.settings_effects import grant_expiry, refresh_token_expiry
from app.rules.scopes import disallowed_scopes, is_subset, restrict_scopes
from app.rules.token_values import REFRESH_TOKEN, digest, has_valid_tag, parse_token

_FIND = CompiledQuery(
    select(
        Grant.__table__,
        User.status.label("user_status"),
        User.tokens_not_before.label("user_not_before"),
        Consent.id.label("consent_id"),
    )
    .join(User, (User.organization_id == Grant.organization_id) & (User.id == Grant.user_id))
    .outerjoin(Consent, CONSENT_OF_GRANT)
    .where(Grant.organization_id == bindparam("organization_id"), Grant.id == bindparam("grant_id"))
)
# The compare-and-set: of all that read the same refresh token, one finds it still current.
_CURRENT = update(Grant).where(
    Grant.organization_id == bindparam("of_organization"),
    Grant.id == bindparam("of_grant"),
    Grant.refresh_digest == bindparam("current_digest"),
    Grant.revoked_at.is_(None),
)
_USED: dict[str, Any] = {name: bindparam(name) for name in ("idle_expires_at", "refreshed_at")}
_KEEP = CompiledQuery(_CURRENT.values(**_USED))
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


@dataclass(frozen=True, slots=True)
class Reused:
    """A refresh token came again after its successor was used, or too late: its family is revoked (RF-4)."""


def refresh(
    authenticated: AuthenticatedClient,
    refresh_token: str,
    scopes: tuple[str, ...],
    resources: tuple[str, ...] = (),
    *,
    address: str | None,
    request_id: str | None,
) -> TokenAnswer | Reused:
    """The next tokens of the grant; ``scopes`` narrow it, and none means all of it (RFC 6749 section 6).

    ``resources`` are those of the grant's that the access token is for, all of them when there are none (RFC 8707).

    A repeated request within the grace time gets the same answer, until its successor is first used (RF-3).
    Raises InvalidGrant, InvalidScope, InvalidTarget. Audit: ``refresh_token.reused``.
    """
    grants.ensure_signing_keys(authenticated.client)
    return _refresh(authenticated, refresh_token, scopes, resources, address, request_id)


@transaction
def _refresh(
    authenticated: AuthenticatedClient,
    refresh_token: str,
    scopes: tuple[str, ...],
    resources: tuple[str, ...],
    address: str | None,
    request_id: str | None,
) -> TokenAnswer | Reused:
    client = authenticated.client
    actor = grants.client_actor(client, address, request_id)
    row = _find(authenticated, refresh_token)
    if hmac.compare_digest(digest(refresh_token), row.refresh_digest):
        # What was taken from the client since the user allowed it is not handed out any more.
        allowed = restrict_scopes(row.scope.split(), client.document["scopes"])
        if not is_subset(scopes, allowed):
            raise InvalidScope("The scope may only narrow what the user allowed.").with_cause(
                "scope_not_allowed", received=" ".join(disallowed_scopes(scopes, allowed)), expected=allowed
            )
        if not allowed:
            raise InvalidGrant().with_cause(
                "grant_ended", received="none of the scopes is the client's any more"
            )
        answer = _advance(authenticated, row, refresh_token, scopes or allowed, resources)
        if answer is not None:
            return answer
        # Somebody was faster; under READ COMMITTED this sees what the winner left.
        row = _find(authenticated, refresh_token)
    return _answer_again(client, row, refresh_token) or _reuse(actor, row)


def _find(authenticated: AuthenticatedClient, refresh_token: str) -> Any:
    client = authenticated.client
    parsed = parse_token(refresh_token)
    if parsed is None or parsed.kind != REFRESH_TOKEN or parsed.organization_id != client.organization.id:
        raise InvalidGrant().with_cause("refresh_unknown")
    # A forged token that names a grant must not be able to end it: only our own may count as reuse.
    if not has_valid_tag(refresh_token, keyring.refresh_tag_key(client.organization.id)):
        raise InvalidGrant().with_cause("refresh_unknown")
    row = _FIND.first(organization_id=client.organization.id, grant_id=parsed.grant_id)
    if row is None or row.client_id != client.id or row.refresh_digest is None:
        raise InvalidGrant().with_cause("refresh_unknown")
    if row.dpop_jkt is not None and row.dpop_jkt != authenticated.dpop_jkt:
        # A public client proves nothing else: its refresh token is the key's (RFC 9449 section 5, RF-6).
        words = "The refresh token is bound to another key than the one of the DPoP proof."
        raise InvalidGrant(words).with_cause(
            "dpop_wrong_key" if authenticated.dpop_jkt else "dpop_missing",
            received=authenticated.dpop_jkt,
            expected=row.dpop_jkt,
        )
    now = clock.now()
    if row.revoked_at is not None:
        raise InvalidGrant().with_cause("grant_ended", received=f"revoked: {row.revoked_reason}")
    if _end_of(client, row) <= now:
        raise InvalidGrant().with_cause("refresh_expired")
    if row.user_status != user_model.ACTIVE:
        raise InvalidGrant().with_cause("grant_ended")
    is_forgotten = client.invalidates_grant(row.allowed_at, row.auth_time, row.credential_id)
    if is_forgotten or is_before_cutoff(row.allowed_at, row.user_not_before):
        raise InvalidGrant().with_cause("grant_ended", received="revoked with all that was issued before")
    return row


def _end_of(client: ClientSnapshot, row: Any) -> datetime:
    """When the family ends as the settings are now: one that they do not allow any more is not revived by its use."""
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
    return row.consent_id is not None and asks_people(client.trust, client.organization.settings)


def _advance(
    authenticated: AuthenticatedClient,
    row: Any,
    presented: str,
    scopes: tuple[str, ...],
    resources: tuple[str, ...],
) -> TokenAnswer | None:
    """The compare-and-set that decides; None when another request won it."""
    client = authenticated.client
    settings = client.organization.settings["oauth"]["refresh_token"]
    unit = current_unit_of_work()
    now = clock.now()
    bound = authenticated.dpop_jkt is not None
    rotates = rotates_refresh_tokens(client.document, client.organization.settings, bound=bound)
    refresh_token = (
        unit.stable_value("refresh_token", lambda: grants.generate_refresh_token(client, row.id))
        if rotates
        else None
    )
    of = grants.NewGrant(
        row.id,
        row.user_id,
        row.session_id,
        tuple(row.scope.split()),
        row.auth_time,
        row.amr,
        row.allowed_at,
        acr=row.acr,
        resources=tuple(row.resource.split()),
        requested_resources=resources,
        claims=row.claims,
        expires_at=grant_expiry(
            client.organization.settings,
            expires_at=row.expires_at,
            allowed_at=row.allowed_at,
            is_consented=_is_consented(client, row),
        ),
    )
    claim: dict[str, Any] = {
        "of_organization": row.organization_id,
        "of_grant": row.id,
        "current_digest": row.refresh_digest,
        "idle_expires_at": min(row.expires_at, now + timedelta(seconds=settings["idle_ttl_seconds"])),
        "refreshed_at": now,
    }
    answer = grants.prepare_tokens(authenticated, of, scopes, refresh_token)
    if refresh_token is None:
        changed = _KEEP.write(**claim)
    else:
        changed = _ROTATE.write(
            **claim,
            refresh_digest=digest(refresh_token),
            previous_digest=row.refresh_digest,
            rotated_at=now,
            sealed_answer=_seal(presented, answer.answer),
        )
    if changed != 1:
        return None
    grants.store_access_token(authenticated, of, answer)
    # The grant's row may be another refresh's by the time that somebody asks; the access token's is this one's own.
    verify_commit_with(
        lambda: select(AccessToken.id).where(
            AccessToken.organization_id == row.organization_id, AccessToken.id == answer.row["id"]
        )
    )
    return answer.answer


def _answer_again(client: ClientSnapshot, row: Any, presented: str) -> TokenAnswer | None:
    """The answer that the winner got, while the grace time lasts and its successor is unused."""
    if row.previous_digest is None or not hmac.compare_digest(digest(presented), row.previous_digest):
        return None
    grace = timedelta(seconds=client.organization.settings["oauth"]["refresh_token"]["reuse_grace_seconds"])
    if row.sealed_answer is None or clock.now() > row.rotated_at + grace:
        return None
    return TokenAnswer(**json.loads(sealing.unseal(_key(presented), row.sealed_answer, row.id.bytes)))


def _reuse(actor: Actor, row: Any) -> Reused:
    if grants.revoke_grant_by_id(actor, row.id, reason="refresh_token_reused"):
        audit.record(
            actor,
            "refresh_token.reused",
            target_type="client",
            target_id=format_client_id(actor.organization_id, row.client_id),
            after={"user": public_id("usr", row.user_id), "revoked_grant": public_id("grt", row.id)},
        )
        notify_user(actor, row.user_id, "refresh_token_reused")
    return Reused()


def _seal(presented: str, answer: TokenAnswer) -> bytes:
    """Sealed under the very token that asked: a dump of the database cannot open it (RF-3)."""
    parsed = parse_token(presented)
    if parsed is None or parsed.grant_id is None:
        raise InvalidGrant
    return sealing.seal(_key(presented), json.dumps(asdict(answer)).encode(), parsed.grant_id.bytes)


def _key(presented: str) -> bytes:
    return sealing.derive(presented.encode(), "gatehouse refresh answer")
