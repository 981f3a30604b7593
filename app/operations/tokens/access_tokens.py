"""Create access tokens, opaque or JWT (RFC 9068), and token responses."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.config import current
from app.fast_path.compiled_query import CompiledQuery, insert_into
from app.models.token import AccessToken
from app.operations.clients.resources import get_catalog
from app.operations.directory.snapshots import ClientSnapshot, OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.store import keyring
from app.operations.tokens import status_lists
from app.operations.tokens.app_claims import load_app_claims
from app.rules import jws
from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.authorization.consents import requires_user_consent
from app.rules.clients import app_claims, resource_indicators
from app.rules.clients.client_coherence import signing_algorithm_for
from app.rules.clients.resource_indicators import MAX_UNLISTED_SECONDS, STORED, TokenRequester, TokenTarget
from app.rules.errors import AuthorizationError, InvalidScope, InvalidTarget
from app.rules.identifiers import ACCESS_TOKEN, digest, new_id, new_token, parse_public_id, public_id
from app.rules.scopes import restrict_scopes
from app.rules.tokens import unstored_tokens
from app.rules.tokens.status_lists import reference
from app.rules.tokens.unstored_tokens import UnstoredTokenData, sign_token_data, verify_token_data

JWT = "jwt"
TYPE = "at+jwt"
MAX_JWT_SECONDS = 3600
NO_SCOPE_LEFT = "None of the scopes belongs to an available resource."


def management_audience() -> str:
    """Return the resource indicator of the management API."""
    config = current()
    return f"{config.base_url}/management"


def resolve_target(
    client: ClientSnapshot, scopes: Sequence[str], requested: Sequence[str], *, is_consented: bool = True
) -> TokenTarget:
    """Return the scopes and audience of a token for these scopes and resources.

    ``is_consented`` is False if no user allowed the client this access. Raises InvalidTarget, InvalidScope.
    """
    requester = _requester(client, is_consented=is_consented)
    return resource_indicators.resolve_target(
        scopes, requested, requester, get_catalog(client.organization.id)
    )


def accessible_scopes(
    client: ClientSnapshot, scopes: tuple[str, ...], *, is_consented: bool
) -> tuple[str, ...]:
    """Return the scopes that the client has access to, in their order."""
    key = ("accessible scopes", scopes, is_consented)
    found: tuple[str, ...] | None = client.derived.get(key)
    if found is None:
        requester = _requester(client, is_consented=is_consented)
        found = resource_indicators.accessible_scopes(scopes, requester, get_catalog(client.organization.id))
        _keep(client, key, found)
    return found


def remaining_scopes(client: ClientSnapshot, scope: str, allowed_at: datetime) -> tuple[str, ...]:
    """Return what is left of the scopes, separated by spaces, that the client was allowed then.

    Those that it has lost since are left out, and for a client that needs consent also those that were deleted and
    created again, perhaps for another API.
    """
    scopes = restrict_scopes(scope.split(), client.document["scopes"])
    if not requires_user_consent(client.trust, client.organization.settings):
        return scopes
    return get_catalog(client.organization.id).select_allowed(scopes, allowed_at)


def default_user_scopes(client: ClientSnapshot) -> tuple[str, ...]:
    """Return the scopes that a client requests from a user if it names none: all that it has access to."""
    return accessible_scopes(client, tuple(client.document["scopes"]), is_consented=True)


def default_client_scopes(
    client: ClientSnapshot, scopes: tuple[str, ...], resources: Sequence[str]
) -> tuple[str, ...]:
    """Return those of the client's scopes that it gets for itself if it requests none.

    Raises InvalidScope if it has access to none of them, unless it requests resources.
    """
    found = accessible_scopes(client, scopes, is_consented=False)
    if not found and not resources:
        requester = _requester(client, is_consented=False)
        resource_indicators.require_some_access(scopes, found, requester, get_catalog(client.organization.id))
    return found


def has_token_access(
    client: ClientSnapshot, scope: str, audience: str, issued_at: datetime, *, is_consented: bool
) -> bool:
    """Return whether the client still has the access that its token was issued with.

    ``scope`` and ``audience`` are the token's, separated by spaces.
    """
    key = ("access of token", scope, audience, is_consented)
    found: tuple[bool, datetime | None] | None = client.derived.get(key)
    if found is None:
        requester = _requester(client, is_consented=is_consented)
        found = resource_indicators.access_of_token(
            scope.split(), audience.split(), requester, get_catalog(client.organization.id)
        )
        _keep(client, key, found)
    has_access, not_before = found
    return has_access and (not_before is None or issued_at >= not_before)


def _requester(client: ClientSnapshot, *, is_consented: bool) -> TokenRequester:
    return TokenRequester(
        client.organization.issuer,
        management_audience(),
        client.document.get("resources") or (),
        client.document["scopes"],
        client.access,
        is_consented,
    )


def restrict_to_resources(
    client: ClientSnapshot, parameters: AuthorizationParameters
) -> AuthorizationParameters:
    """Return the request with only the scopes of its resources (RFC 8707 section 2). Raises AuthorizationError."""
    try:
        target = resolve_target(client, parameters.scopes, parameters.resources)
    except (InvalidScope, InvalidTarget) as refused:
        refusal = AuthorizationError(refused.code, refused.description)
        refusal.cause = refused.cause
        raise refusal from refused
    if not target.scopes:
        raise AuthorizationError("invalid_scope", NO_SCOPE_LEFT)
    bare = find_bare_resources(client, target.scopes, parameters.resources)
    return replace(parameters, scopes=target.scopes, bare_resources=bare)


def find_bare_resources(
    client: ClientSnapshot, scopes: Collection[str], resources: Collection[str], *, fits_any: bool = False
) -> tuple[str, ...]:
    """Return the resources that none of the scopes belongs to.

    ``fits_any``: a scope of no resource, which is valid at any, counts for all of them.
    """
    if not resources:
        return ()
    requester, catalog = _requester(client, is_consented=True), get_catalog(client.organization.id)
    owners = {resource_indicators.find_scope_owner(scope, requester, catalog) for scope in scopes}
    if fits_any and None in owners:
        return ()
    return tuple(resource for resource in resources if resource not in owners)


def restrict_to_allowed(
    client: ClientSnapshot, resources: tuple[str, ...], requested: Collection[str], allowed: Collection[str]
) -> tuple[str, ...]:
    """Return the resources of a token without those whose every requested scope the user declined (TK-6)."""
    requester, catalog = _requester(client, is_consented=True), get_catalog(client.organization.id)
    return resource_indicators.exclude_declined(resources, requested, allowed, requester, catalog)


def select_resources(
    client: ClientSnapshot, scopes: Sequence[str], granted: Sequence[str], requested: Sequence[str]
) -> tuple[str, ...]:
    """Return the resources of a token under a grant: the requested ones, or all that were granted.

    ``scopes`` and ``granted`` are what the user allowed. Raises InvalidTarget for other resources (RFC 8707
    section 2.2).
    """
    if requested:
        resource_indicators.require_authorized_resources(
            requested,
            granted
            or resolve_target(
                client, accessible_scopes(client, tuple(scopes), is_consented=True), ()
            ).audience,
        )
    return tuple(requested or granted)


def is_jwt(client: ClientSnapshot, audience: Sequence[str]) -> bool:
    """Return whether the token is a JWT, as set for its resources, else the client, else the organization."""
    otherwise = (
        client.document.get("access_token_format")
        or client.organization.settings["oauth"]["access_token"]["format"]
    )
    return (
        resource_indicators.choose_token_format(audience, get_catalog(client.organization.id), otherwise)
        == JWT
    )


def may_be_jwt(client: ClientSnapshot) -> bool:
    """Return whether a token of the client can be a JWT for any resource of the organization."""
    return is_jwt(client, ()) or get_catalog(client.organization.id).has_jwt


def may_be_listed(client: ClientSnapshot) -> bool:
    """Return whether a token of the client can be in a status list."""
    return get_catalog(client.organization.id).has_status_list


def token_lifetime(client: ClientSnapshot, audience: Sequence[str], *, as_jwt: bool) -> int:
    """Return the lifetime in seconds, as set for the token's resources, else for the organization."""
    settings = client.organization.settings["oauth"]["access_token"]
    otherwise = int(settings["jwt_ttl_seconds"] if as_jwt else settings["ttl_seconds"])
    # Resource servers may accept a JWT without introspection, so no resource can extend its lifetime further.
    max_seconds = MAX_JWT_SECONDS if as_jwt else 86_400
    return resource_indicators.choose_token_lifetime(
        audience, get_catalog(client.organization.id), otherwise, max_seconds=max_seconds
    )


INSERT_TOKEN = CompiledQuery(insert_into(AccessToken))
BEARER, DPOP = "Bearer", "DPoP"
MAX_JWT_LENGTH = 8192
_MAX_DERIVED = 300


class PreparedAccessToken(Struct, frozen=True):
    """A generated access token that is not stored yet: its value, lifetime in seconds, and row.

    ``is_stored`` is False if the row is written only once the token is revoked or exchanged. ``entry`` is the row of a
    status list to store with the token.
    """

    value: str
    expires_in: int
    row: dict[str, Any]
    is_jwt: bool = False
    is_stored: bool = True
    entry: dict[str, Any] | None = None

    @property
    def token_type(self) -> str:
        """``Bearer`` or ``DPoP`` (RFC 6750, RFC 9449 section 5)."""
        return BEARER if self.row["dpop_jkt"] is None else DPOP


def prepare_access_token(
    client: ClientSnapshot,
    scopes: Sequence[str],
    *,
    now: datetime,
    subject: str,
    user_id: UUID | None = None,
    resources: Sequence[str] = (),
    auth_time: datetime | None = None,
    acr: str | None = None,
    dpop_jkt: str | None = None,
    act: Mapping[str, Any] | None = None,
    latest_expiry: datetime | None = None,
    is_consented: bool = True,
    grant_id: UUID | None = None,
    credential_id: UUID | None = None,
    must_store: bool = False,
    needs_scope: bool = False,
) -> PreparedAccessToken:
    """Generate an access token of the client for ``subject`` without storing it.

    A JWT contains the claims about the user ``user_id`` that its scopes release. ``resources`` are the requested ones
    (RFC 8707) and may reduce the scopes. ``dpop_jkt`` is the key that the token is bound to, ``act`` the actor claim,
    ``latest_expiry`` the latest expiry. ``is_consented`` is False if no user allowed the client this access.
    ``grant_id`` and ``credential_id`` are the grant and the secret that it depends on; with ``must_store`` it has a row
    whatever its APIs choose. ``needs_scope`` is for requests that name scopes: a response without ``scope`` would tell
    the client that it received them (RFC 6749 section 5.1).

    Raises InvalidTarget, InvalidScope, which also refuses a JWT of more than MAX_JWT_LENGTH characters.
    """
    plan = _plan_of(client, tuple(scopes), tuple(resources), is_consented=is_consented)
    if needs_scope and not plan.scope:
        raise InvalidScope(NO_SCOPE_LEFT)
    audience, scope, expires_in = plan.audience, plan.scope, plan.expires_in
    if latest_expiry is not None:
        expires_in = min(expires_in, int((latest_expiry - now).total_seconds()))
    token_id = new_id()
    row: dict[str, Any] = {
        "id": token_id,
        "digest": b"",
        "scope": scope,
        "audience": " ".join(audience),
        "dpop_jkt": dpop_jkt,
        "act": act,
        "issued_at": now,
        "expires_at": now + timedelta(seconds=expires_in),
    }
    is_stored, entry = must_store or plan.storage == STORED, None
    if plan.as_jwt:
        more: dict[str, Any] = load_app_claims(client, user_id, scope.split(), app_claims.ACCESS_TOKEN)
        more |= {"acr": acr, "act": act, unstored_tokens.CLAIM: None}
        if auth_time is not None:
            more["auth_time"] = int(auth_time.timestamp())
        if dpop_jkt is not None:
            more["cnf"] = {"jkt": dpop_jkt}
        if not is_stored:
            data = UnstoredTokenData(now, client.id, grant_id, credential_id)
            more[unstored_tokens.CLAIM] = sign_token_data(_unstored_key(), token_id, data)
            # One of the user's with this name would be taken for that of a list.
            more["status"] = None
        if plan.is_listed:
            # Of the client's own tokens many share the row of an entry. All others have one each.
            if is_stored or grant_id is not None:
                list_id, index = status_lists.take_index(client.organization)
                owners = {"client_id": client.id, "grant_id": grant_id, "credential_id": credential_id}
                entry = status_lists.entry_of_token(row, list_id, index, **owners)
            else:
                list_id, index = status_lists.take_index_for_client(
                    client, credential_id, scope=scope, audience=row["audience"], lifetime_seconds=expires_in
                )
            more["status"] = reference(status_lists.list_uri(client.organization, list_id), index)
        value = _signed(client, public_id("tok", token_id), scope, audience, subject, now, expires_in, more)
        if len(value) > MAX_JWT_LENGTH:
            # It could be neither introspected nor revoked.
            raise InvalidScope("This access token would be too long. Request fewer scopes or resources.")
    else:
        value = new_token(ACCESS_TOKEN, client.organization.id)
    row["digest"] = digest(value)
    return PreparedAccessToken(value, expires_in, row, plan.as_jwt, is_stored, entry)


class _Plan(Struct, frozen=True):
    """The properties shared by all tokens of a client for the same scopes and resources."""

    scope: str
    audience: tuple[str, ...]
    as_jwt: bool
    expires_in: int
    storage: str
    is_listed: bool


def _plan_of(
    client: ClientSnapshot, scopes: tuple[str, ...], resources: tuple[str, ...], *, is_consented: bool
) -> _Plan:
    key = ("access token", scopes, resources, is_consented)
    plan: _Plan | None = client.derived.get(key)
    if plan is None:
        target = resolve_target(client, scopes, resources, is_consented=is_consented)
        as_jwt = is_jwt(client, target.audience)
        storage, is_listed = _storage_of(client, target.audience) if as_jwt else (STORED, False)
        expires_in = token_lifetime(client, target.audience, as_jwt=as_jwt)
        if as_jwt and resource_indicators.has_unlisted(target.audience, get_catalog(client.organization.id)):
            expires_in = min(expires_in, MAX_UNLISTED_SECONDS)
        plan = _Plan(" ".join(target.scopes), target.audience, as_jwt, expires_in, storage, is_listed)
        _keep(client, key, plan)
    return plan


def _storage_of(client: ClientSnapshot, audience: tuple[str, ...]) -> tuple[str, bool]:
    storage, is_listed = resource_indicators.choose_token_storage(
        audience, get_catalog(client.organization.id)
    )
    is_allowed = client.organization.settings["oauth"]["access_token"]["allow_unstored"]
    # An API that reads status lists rejects tokens that are in none, whoever withdrew the permission.
    return storage if is_allowed else STORED, is_listed


def _unstored_key() -> bytes:
    return keyring.derive_instance_key("unstored access tokens")


def _keep(client: ClientSnapshot, key: Hashable, value: Any) -> None:
    # A caller may request many combinations, but few clients use more than a handful.
    if len(client.derived) < _MAX_DERIVED:
        client.derived[key] = value


def unverified_claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, unverified, or an empty dictionary for other strings."""
    if len(token) > MAX_JWT_LENGTH or token.count(".") != 2:
        return {}
    return jws.read_part(token.split(".")[1]) or {}


def unverified_client_and_organization(token: str) -> tuple[str, str]:
    """Return the ``client_id`` and organization slug of a JWT, unverified, to find the token's row.

    Each is empty if the JWT does not contain it.
    """
    claims = unverified_claims(token)
    named = (claims.get("client_id"), claims.get("organization_id"))
    # Our values are ASCII. JSON can contain half of a surrogate pair, which the database would reject.
    client_id, slug = (name if isinstance(name, str) and name.isascii() else "" for name in named)
    return client_id, slug


def read_unstored(
    organization: OrganizationSnapshot, token: str
) -> tuple[UUID, UnstoredTokenData, dict[str, Any]] | None:
    """Return id, data and claims of a JWT that this installation issued without a row, expired or not; else None."""
    claims = unverified_claims(token)
    sent, jti = claims.get(unstored_tokens.CLAIM), claims.get("jti")
    token_id = parse_public_id("tok", jti) if isinstance(jti, str) else None
    if token_id is None or not isinstance(sent, str):
        return None
    # The cheaper check first.
    data = verify_token_data(_unstored_key(), token_id, sent)
    verified = None if data is None else signing_keys.read_jwt(organization.id, token, token_type=TYPE)
    if data is None or verified is None or verified["iss"] != organization.issuer:
        return None
    return token_id, data, verified


def _signed(
    client: ClientSnapshot,
    token_id: str,
    scope: str,
    audience: tuple[str, ...],
    subject: str,
    now: datetime,
    expires_in: int,
    more: dict[str, Any],
) -> str:
    issued_at = int(now.timestamp())
    claims: dict[str, Any] = {
        "iss": client.organization.issuer,
        "sub": subject,
        "aud": audience[0] if len(audience) == 1 else list(audience),
        "exp": issued_at + expires_in,
        "iat": issued_at,
        "jti": token_id,
        "client_id": client.client_id,
        "organization_id": client.organization.slug,
    }
    more = {"scope": scope or None, **more}
    # The claims of the protocol last, so that none of the user's overwrites them.
    claims = {name: value for name, value in more.items() if value is not None} | claims
    algorithm = signing_algorithm_for(client.document, client.organization.settings)
    return signing_keys.sign_jwt(client.organization, algorithm, claims, token_type=TYPE)


class TokenResponse(Struct, frozen=True):
    """A successful token response (RFC 6749 section 5.1); ``expires_in`` is in seconds."""

    access_token: str
    expires_in: int
    scope: str
    refresh_token: str | None = None
    id_token: str | None = None
    token_type: str = BEARER

    @classmethod
    def of(cls, made: PreparedAccessToken, refresh_token: str | None = None) -> TokenResponse:
        """Return the response for a prepared access token."""
        return cls(made.value, made.expires_in, made.row["scope"], refresh_token, token_type=made.token_type)

    def as_document(self) -> dict[str, Any]:
        """Return the JSON object; an empty ``scope`` is omitted (RFC 6749 section 3.3)."""
        document = {
            "access_token": self.access_token,
            "token_type": self.token_type,
            "expires_in": self.expires_in,
            "scope": self.scope or None,
            "refresh_token": self.refresh_token,
            "id_token": self.id_token,
        }
        return {name: value for name, value in document.items() if value is not None}
