"""Clients as Authlib sees them, and their authentication at the OAuth endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from authlib.oauth2.rfc6749 import ClientMixin
from msgspec.structs import replace

from app.oauth.protocol_request import ProtocolRequest
from app.oauth.request_parsing import parse_credentials
from app.operations.clients import client_authentication, dpop_proofs
from app.operations.directory import lookups
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot
from app.operations.store.request_limits import require_request_allowed
from app.rules.clients.client_types import accepts_auth_method, can_use_grant
from app.rules.clients.dpop import InvalidProof
from app.rules.clients.redirect_uris import match_redirect_uri
from app.rules.errors import InvalidClient, InvalidGrant, InvalidScope, InvalidTarget, UnauthorizedClient

T = TypeVar("T")
# If one of these parameters is in the body, the Authorization header alone does not identify the client.
_IN_BODY = frozenset({"client_id", "client_secret", "client_assertion", "client_assertion_type"})
_METHOD_AND_KEYS = ("token_endpoint_auth_method", "jwks", "jwks_uri")
_PROVING_ENDPOINTS = frozenset({"token", "par"})


class ProtocolClient(ClientMixin):
    """Answers Authlib's questions from the cached client; ``authenticated`` raises for one that was only looked up."""

    __slots__ = ("_authenticated", "view")

    def __init__(self, view: ClientSnapshot, authenticated: AuthenticatedClient | None = None) -> None:
        self.view = view
        self._authenticated = authenticated

    @property
    def authenticated(self) -> AuthenticatedClient:
        """The client as operations take it. Raises InvalidClient for one that was only looked up."""
        if self._authenticated is None:
            raise InvalidClient
        return self._authenticated

    @property
    def client_metadata(self) -> Mapping[str, Any]:
        """The registered metadata."""
        return self.view.document

    def get_client_id(self) -> str:
        """Return the public ``client_id``."""
        return self.view.client_id

    def get_default_redirect_uri(self) -> None:
        """Return None: every request must name its redirect URI (RU-4)."""

    def get_allowed_scope(self, scope: str | None) -> str:
        """Return the scope unchanged: ``RequestPolicy`` has rejected scopes that the client may not request.

        Without one, it has set the default scopes.
        """
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        """Return whether the URI is registered (RU-1, RU-2)."""
        registered = self.view.document["redirect_uris"]
        return match_redirect_uri(redirect_uri, registered, client_type=self.view.type) is not None

    def check_client_secret(self, client_secret: str) -> bool:
        """Return False: ``operations/clients/client_authentication`` verifies secrets."""
        return False

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        """Return whether the client may use this method, at all endpoints alike (CA-7)."""
        view = self.view
        return accepts_auth_method(method, document=view.document, settings=view.organization.settings)

    def check_response_type(self, response_type: str) -> bool:
        """Return whether the client may use the authorization endpoint."""
        return response_type == "code" and self.check_grant_type("authorization_code")

    def check_grant_type(self, grant_type: str) -> bool:
        """Return whether client and organization both allow the grant type."""
        return can_use_grant(
            grant_type,
            document=self.view.document,
            settings=self.view.organization.settings,
            is_public=self.view.is_public,
        )


def auth_method(method: str) -> Callable[[Any, Any], ProtocolClient | None]:
    """Return the function to register with Authlib for the method.

    Authlib's own functions name in their errors what was wrong, take two credentials at once, and cannot read a
    digest. All methods share ``authenticate``, whose errors are alike (CA-3).
    """

    def authenticate_by_method(_query_client: Any, request: Any) -> ProtocolClient | None:
        client = authenticate(request.protocol)
        return client if client.check_endpoint_auth_method(method, "") else None

    return authenticate_by_method


def authenticate(request: ProtocolRequest) -> ProtocolClient:
    """Return the client of the request, authenticated once.

    Raises InvalidClient, InvalidProof, NonceNeeded, and TooManyRequests if it sends more than the organization allows.

    Call it before a transaction begins: it may fetch the client's keys, and what it spends is spent at once.
    """
    if request.client is None:
        authenticated = _authenticate(request)
        if request.dpop_proof is not None or dpop_proofs.is_demanded(authenticated.client):
            authenticated = _verify_dpop_proof(request, authenticated)
        client = authenticated.client
        # Whoever holds a leaked token can revoke it at any time.
        if request.endpoint != "revoke":
            require_request_allowed(
                client.organization.id,
                client.organization.settings["limits"],
                None if client.is_public else client.client_id,
                request.ip_address,
            )
        request.client = ProtocolClient(client, authenticated)
    return request.client


def retry_with_fresh_client(request: ProtocolRequest, decide: Callable[[], T]) -> T:
    """Call ``decide``, and again if it refused while the cached client or organization was out of date."""
    try:
        return decide()
    except (InvalidGrant, InvalidProof, InvalidScope, InvalidTarget, UnauthorizedClient):
        if request.authenticated is None or not lookups.is_outdated(request.authenticated.client):
            raise
    request.client = None
    return decide()


def confirm_authentication(authenticated: AuthenticatedClient) -> None:
    """Raise InvalidClient if the client could no longer authenticate as it did.

    Call it after the commit and before the response. A process that was stopped while it issued tokens goes on with
    what it knew before.
    """
    client = authenticated.client
    if lookups.is_current(client):
        return
    fresh = lookups.reload_client(client)
    if fresh is None or not fresh.is_active:
        raise InvalidClient
    if authenticated.credential_id is not None:
        if all(secret.id != authenticated.credential_id for secret in fresh.secrets):
            raise InvalidClient
    elif any(fresh.document.get(name) != client.document.get(name) for name in _METHOD_AND_KEYS):
        raise InvalidClient


def _authenticate(request: ProtocolRequest) -> AuthenticatedClient:
    if request.playground_client is not None:
        if not request.playground_client.client.is_active:
            raise InvalidClient().with_cause("client_disabled")
        request.authenticated = request.playground_client
        return request.playground_client
    parameters, header = request.parameters, request.authorization
    is_header_alone = header is not None and _IN_BODY.isdisjoint(parameters)
    # Programs repeat the same header, which stays valid while nothing has changed.
    if header is not None and is_header_alone:
        known = client_authentication.find(header, request.organization_id)
        if known is not None:
            request.authenticated = known
            return known
    presented = request.presented = parse_credentials(request, parameters)
    authenticated = request.authenticated = client_authentication.authenticate_client(
        presented, organization_id=request.organization_id, ip_address=request.ip_address
    )
    if presented.assertion is not None:
        request.has_claimed_assertion = True
    elif header is not None and is_header_alone:
        client_authentication.put(header, authenticated)
    return authenticated


def _verify_dpop_proof(request: ProtocolRequest, authenticated: AuthenticatedClient) -> AuthenticatedClient:
    """Bind what is issued to the key of the DPoP proof. A proof is spent once, also when the request is retried."""
    # A pushed request may come without a proof; the token request must then bring one.
    is_optional = request.endpoint == "par" and request.dpop_proof is None
    if request.endpoint not in _PROVING_ENDPOINTS or is_optional:
        return authenticated
    if request.dpop_jkt is None:
        request.dpop_jkt = dpop_proofs.key_of_request(
            authenticated, request.dpop_proof, method=request.method, url=request.url
        )
    if request.dpop_jkt is None:
        return authenticated
    request.authenticated = replace(authenticated, dpop_jkt=request.dpop_jkt)
    return request.authenticated
