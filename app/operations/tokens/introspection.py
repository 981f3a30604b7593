"""Token introspection (RFC 7662), protected-resource metadata (RFC 9728), and tokens of the management API."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, select

from app.config import current
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key, is_same
from app.models.grant import Consent, Grant
from app.models.user import User
from app.operations.clients.resources import get_resource
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.grants import signing_keys
from app.operations.grants.grants import CONSENT_OF_GRANT
from app.operations.store import clock, keyring
from app.operations.store.transactions import read
from app.operations.tokens import refresh_tokens, tokens
from app.operations.tokens.access_tokens import management_audience, remaining_scopes
from app.operations.tokens.app_claims import load_app_claims
from app.operations.tokens.id_tokens import subject_of
from app.rules.actor import Actor
from app.rules.clients import dpop
from app.rules.clients.app_claims import INTROSPECTION
from app.rules.clients.client_coherence import signing_algorithm_for
from app.rules.clients.resource_indicators import build_challenge, build_metadata, metadata_url
from app.rules.directory.permissions import PERMISSIONS, ROOT_ONLY
from app.rules.identifiers import REFRESH_TOKEN, ParsedToken, digest, has_valid_tag, parse_token, public_id

SIGNED_TYPE = "token-introspection+jwt"


class ActiveToken(Struct, frozen=True):
    """A valid token as the introspection response describes it; ``client`` is the one that it was issued to.

    ``user_email`` is None for the token of a client itself.
    """

    is_access_token: bool
    client: ClientSnapshot
    subject: str
    user_email: str | None
    scopes: tuple[str, ...]
    audience: tuple[str, ...]
    issued_at: datetime
    expires_at: datetime
    jti: str
    auth_time: datetime | None
    acr: str | None = None
    dpop_jkt: str | None = None
    act: Mapping[str, Any] | None = None
    user_id: UUID | None = None

    @property
    def username(self) -> str | None:
        """The email with which the user signs in, if the token releases it: it would undo a pairwise ``sub``."""
        return self.user_email if "email" in self.scopes else None

    def load_claims(self) -> dict[str, Any]:
        """Return the claims beyond the standard ones that an access token of a user releases."""
        return load_app_claims(self.client, self.user_id, self.scopes, INTROSPECTION)


_FIND_FAMILY = CompiledQuery(
    select(
        Grant.client_id,
        Grant.user_id,
        Grant.scope,
        Grant.auth_time,
        Grant.created_at,
        Grant.rotated_at,
        Grant.expires_at,
        Grant.idle_expires_at,
        Grant.refreshed_at,
        Grant.refresh_digest,
        Grant.revoked_at,
        Grant.revoked_reason,
        Grant.allowed_at,
        Grant.credential_id,
        User.email,
        User.status.label("user_status"),
        User.tokens_not_before.label("user_not_before"),
        Consent.id.label("consent_id"),
    )
    .join(User, is_same(User.id, Grant.user_id))
    .outerjoin(Consent, CONSENT_OF_GRANT)
    .where(has_key(Grant, bindparam("organization_id"), bindparam("grant_id")))
)


def may_see(caller: ClientSnapshot, token: ActiveToken) -> bool:
    """Return whether the token was issued to the caller, or is meant for a resource that it is (IT-1)."""
    if token.client is caller:
        return True
    resources = caller.document.get("resources", ())
    return token.is_access_token and any(resource in resources for resource in token.audience)


def find_active(caller: ClientSnapshot, token: str) -> ActiveToken | None:
    """Return the token of the caller's organization if it is valid; ``may_see`` says whether the caller may know."""
    parsed = parse_token(token)
    if parsed is not None and parsed.kind == REFRESH_TOKEN:
        return _refresh_token(caller, token, parsed)
    token_snapshot = tokens.find_for_introspection(caller, token)
    if token_snapshot is None:
        return None
    return ActiveToken(
        is_access_token=True,
        client=token_snapshot.client,
        subject=subject_of(token_snapshot.client, token_snapshot.user_id)
        if token_snapshot.user_id is not None
        else token_snapshot.origin.client_id,
        user_email=token_snapshot.user_email,
        scopes=token_snapshot.scopes,
        audience=token_snapshot.audience,
        issued_at=token_snapshot.issued_at,
        expires_at=token_snapshot.expires_at,
        jti=public_id("tok", token_snapshot.id),
        auth_time=token_snapshot.authenticated_at,
        acr=token_snapshot.acr,
        dpop_jkt=token_snapshot.dpop_jkt,
        act=token_snapshot.act,
        user_id=token_snapshot.user_id,
    )


def sign(caller: ClientSnapshot, document: Mapping[str, Any]) -> str:
    """Return the response as a JWT, signed with the caller's algorithm or RS256 (RFC 9701 sections 5 and 6).

    ``sub`` and ``exp`` are only inside ``token_introspection``, so that the JWT cannot be used as an access token.
    """
    chosen = caller.document.get("introspection_signed_response_alg") or "RS256"
    algorithm = signing_algorithm_for(caller.document, caller.organization.settings, chosen)
    claims = {
        "iss": caller.organization.issuer,
        "aud": caller.client_id,
        "iat": int(clock.now().timestamp()),
        "token_introspection": dict(document),
    }
    return signing_keys.sign_jwt(caller.organization, algorithm, claims, token_type=SIGNED_TYPE)


def _refresh_token(caller: ClientSnapshot, token: str, parsed: ParsedToken) -> ActiveToken | None:
    if parsed.organization_id != caller.organization.id:
        return None
    row = _FIND_FAMILY.first(organization_id=caller.organization.id, grant_id=parsed.grant_id)
    if row is None or row.client_id != caller.id or row.refresh_digest is None:
        return None
    if not has_valid_tag(token, keyring.refresh_tag_key(caller.organization.id)):
        return None
    if not hmac.compare_digest(digest(token), row.refresh_digest):
        return None
    if refresh_tokens.refusal_of_grant(caller, row) is not None:
        return None
    return ActiveToken(
        is_access_token=False,
        client=caller,
        subject=subject_of(caller, row.user_id),
        user_email=row.email,
        # Scopes that the client has lost since are not listed, nor is the email that one of them released.
        scopes=remaining_scopes(caller, row.scope, row.allowed_at),
        audience=(),
        issued_at=row.rotated_at or row.created_at,
        expires_at=refresh_tokens.end_of_grant(caller, row),
        jti=public_id("grt", parsed.grant_id) if parsed.grant_id is not None else "",
        auth_time=row.auth_time,
    )


class ResourceMetadata(Struct, frozen=True):
    """A metadata document, its URL, and the header that names it; both are None if the resource has no web URL."""

    document: dict[str, Any]
    url: str | None
    challenge: str | None


@read
def metadata_for(actor: Actor, resource_id: str) -> ResourceMetadata:
    """Return the metadata that the resource should serve. Raises NotFound, Forbidden."""
    record = get_resource(actor, resource_id)
    issuer = get_organization_by_id(actor.organization_id).issuer
    scopes = [scope.name for scope in record.scopes]
    url = metadata_url(record.identifier)
    return ResourceMetadata(
        build_metadata(record.identifier, issuer=issuer, scopes=scopes, name=record.name),
        url,
        None if url is None else build_challenge(url),
    )


def management_metadata() -> dict[str, Any]:
    """Return the metadata of the management API. The endpoints at the base URL serve clients of all organizations."""
    scopes = (*PERMISSIONS, *ROOT_ONLY)
    document = build_metadata(
        management_audience(), issuer=current().base_url, scopes=scopes, name="Gatehouse management API"
    )
    return document | {"dpop_signing_alg_values_supported": list(dpop.ALGORITHMS)}


def management_metadata_url() -> str:
    """Return the URL of the management API's metadata."""
    return metadata_url(management_audience()) or ""
