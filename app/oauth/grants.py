"""The grants of the token endpoint: Authlib's own, with our operations behind their extension points.

Authlib decides the order of the steps. An extension point that raises a refusal rolls the transaction back; one that
must commit what it wrote raises ``CommittedRefusal``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, BaseGrant, TokenEndpointMixin, TokenMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import DeviceCodeGrant as AuthlibDeviceCodeGrant
from authlib.oauth2.rfc8628 import DeviceCredentialMixin
from authlib.oidc.core import OpenIDCode, OpenIDToken

from app.oauth.authorization_request import response_to_client
from app.oauth.client_authentication import ProtocolClient
from app.oauth.errors import CommittedRefusal
from app.oauth.protocol_request import current_request
from app.operations.authorization import authorization_requests, codes, device_polls
from app.operations.authorization.codes import ReplayedCode
from app.operations.authorization.device_polls import DevicePoll
from app.operations.grants.grants import ClaimedGrant
from app.operations.tokens import access_tokens, issuance, refresh_tokens, token_exchange, tokens
from app.operations.tokens.access_tokens import TokenResponse
from app.operations.tokens.refresh_tokens import RefreshCredential
from app.rules.authorization.authorization_request import METHOD, is_verified, parse_authorization_request
from app.rules.clients.client_types import AUTH_METHODS, TOKEN_EXCHANGE, scopes_for_itself
from app.rules.clients.resource_indicators import parse_resources
from app.rules.errors import InvalidGrant, InvalidScope, UnauthorizedClient, UnredirectableError
from app.rules.scopes import format_scope, parse_scope
from app.rules.tokens.token_exchange import parse_exchange_request


class IssuedToken(dict[str, Any]):
    """A token response, with what has to be stored for it. Authlib writes it to its debug log: it shows no token."""

    def __init__(self, answer: TokenResponse, prepared: Any = None) -> None:
        super().__init__(answer.as_document())
        self.prepared = prepared

    def __repr__(self) -> str:
        """Show no token."""
        return "<IssuedToken>"


def generate_client_token(*, client: ProtocolClient, scope: str | None, **_: Any) -> IssuedToken:
    """Generate an access token for the client itself: no user, no refresh token, no identity scopes (CC-1)."""
    resources = _requested_resources()
    scopes = scopes_for_itself(scope or "", client.view.document["scopes"])
    if not scope:
        scopes = access_tokens.default_client_scopes(client.view, scopes, resources)
    made = tokens.prepare_client_token(client.authenticated, scopes, resources, needs_scope=bool(scope))
    return IssuedToken(TokenResponse.of(made), made)


def generate_user_token(*, client: ProtocolClient, user: ClaimedGrant, **_: Any) -> IssuedToken:
    """Generate the first tokens of the grant for which a code was claimed."""
    prepared = issuance.prepare_grant_tokens(client.authenticated, user.new)
    return IssuedToken(prepared.answer, prepared)


def generate_refreshed_token(
    *, client: ProtocolClient, user: RefreshCredential, scope: str, **_: Any
) -> IssuedToken:
    """Generate the next tokens of a grant, or repeat those that an earlier request received (RF-3)."""
    if user.earlier_answer is not None:
        return IssuedToken(user.earlier_answer)
    prepared = refresh_tokens.prepare_refresh(client.authenticated, user, parse_scope(scope) or ())
    return IssuedToken(prepared.answer, prepared)


def save_token(token: IssuedToken, request: Any) -> None:
    """Store a token of the client itself, or a grant with its first tokens. Refreshes are stored by ``rotate``."""
    client = request.client
    if request.user is None:
        tokens.store_client_token(client.authenticated, token.prepared)
    elif isinstance(request.user, ClaimedGrant):
        request.protocol.user_id = request.user.new.user_id
        if not request.user.is_stored:
            actor = request.protocol.actor_of(client.authenticated)
            issuance.store_grant_tokens(actor, client.authenticated, request.user.new, token.prepared)


class ClientCredentialsGrant(grants.ClientCredentialsGrant):
    """Client credentials (RFC 6749 section 4.4)."""

    TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS


class StoredCode(AuthorizationCodeMixin):
    """A stored authorization code as Authlib needs to see it."""

    code_challenge_method = METHOD

    def __init__(self, row: Any) -> None:
        self.row = row
        self.code_challenge = row.code_challenge

    def get_redirect_uri(self) -> str:
        """Return the redirect URI of the authorization request."""
        return str(self.row.redirect_uri)

    def get_scope(self) -> str:
        """Return the scopes that the user allowed."""
        return str(self.row.scope)


class AuthorizationCodeGrant(grants.AuthorizationCodeGrant):
    """Authorization code (RFC 6749 section 4.1): both the authorization endpoint and the token endpoint."""

    TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS

    @staticmethod
    def validate_authorization_redirect_uri(request: Any, client: ProtocolClient) -> str:
        """Return the redirect URI. Raises UnredirectableError: without a registered one there is no redirect (law 9).

        The stock method quotes the URI in its error, and fails with a 500 if it holds quotes or is not ASCII.
        """
        redirect_uri: str | None = request.payload.redirect_uri
        registered = client.view.document["redirect_uris"]
        if redirect_uri is None and request.refusal is not None:
            # It may be in the request object, which was rejected (RFC 9101). That fault is the one to correct.
            unredirectable = UnredirectableError(request.refusal.description, code=request.refusal.code)
            unredirectable.cause = request.refusal.cause
            raise unredirectable
        if redirect_uri is None:
            raise UnredirectableError("The app's request contains no redirect_uri.").with_cause(
                "redirect_uri_missing", expected=registered
            )
        if not client.check_redirect_uri(redirect_uri) and not request.check_playground():
            raise UnredirectableError("The app's redirect_uri isn't registered.").with_cause(
                "redirect_uri_not_registered", received=redirect_uri, expected=registered
            )
        return redirect_uri

    def create_authorization_response(self, redirect_uri: str, grant_user: Any) -> tuple[int, Any, Any]:
        """Issue the code as Authlib does, and send it in the requested response mode with ``iss``.

        The stock response rewrites the redirect URI's own query, and knows no form_post.
        """
        super().create_authorization_response(redirect_uri, grant_user)
        parameters = {"code": self.request.issued_code}
        return response_to_client(self.client.view, self.request.payload.data, parameters)

    def generate_authorization_code(self) -> str:
        """Return a new code that names its organization."""
        return codes.generate_code(self.client.view.organization)

    def save_authorization_code(self, code: str, request: Any) -> None:
        """Store the code, the consent, and that the request is completed. Raises RequestEnded."""
        decision = request.decision
        authorization_requests.issue_code(
            decision.actor,
            self.client.view,
            request.parameters,
            request.user,
            code=code,
            scopes=decision.scopes,
            request=decision.stored,
            pushed_id=request.pushed_id,
            remember=decision.remember,
            ends_at=decision.ends_at,
        )
        request.issued_code = code

    def query_authorization_code(self, code: str, client: ProtocolClient) -> StoredCode:
        """Return the client's code. Raises InvalidGrant, also for another redirect URI, with a cause for the log."""
        redirect_uri = self.request.payload.redirect_uri
        return StoredCode(codes.find_code(client.authenticated, code, redirect_uri))

    def authenticate_user(self, authorization_code: StoredCode) -> ClaimedGrant:
        """Claim the code, after client, redirect URI and verifier were checked. A second use revokes its grant."""
        authenticated = self.client.authenticated
        actor = self.request.protocol.actor_of(authenticated)
        claimed = codes.claim_code(actor, authenticated, authorization_code.row, _requested_resources())
        if isinstance(claimed, ReplayedCode):
            refusal = InvalidGrant().with_cause(
                "code_reused", received="the second use of the code, whose tokens were revoked"
            )
            raise CommittedRefusal(refusal)
        return claimed

    def delete_authorization_code(self, authorization_code: StoredCode) -> None:
        """Do nothing: the claim marked the code as used, and its row detects a second use."""


class RequestPolicy:
    """Grant extension: the rules for authorization requests, before Authlib's own checks of the payload."""

    def __call__(self, grant: Any) -> None:
        """Register with the grant."""
        grant.register_hook("before_validate_authorization_request_payload", self.validate_request)

    def validate_request(self, grant: Any, redirect_uri: str) -> None:
        """Set the request's checked parameters. Raises AuthorizationError, which may be sent to the client."""
        request, client = grant.request, grant.client.view
        if request.refusal is not None:
            raise request.refusal
        if request.parameters is None:
            parameters = parse_authorization_request(
                request.payload.data,
                request.repeated,
                redirect_uri=redirect_uri,
                client=client.document,
                code_protection=client.code_protection,
                default_scopes=access_tokens.default_user_scopes(client),
            )
            request.parameters = access_tokens.restrict_to_resources(client, parameters)


class CodeChallengeS256(CodeChallenge):
    """PKCE, only with S256 (RFC 7636, RFC 9700 section 2.1.1); ``RequestPolicy`` says which clients need it."""

    DEFAULT_CODE_CHALLENGE_METHOD = METHOD
    SUPPORTED_CODE_CHALLENGE_METHOD = (METHOD,)
    CODE_CHALLENGE_METHODS = MappingProxyType({METHOD: is_verified})

    def validate_code_verifier(self, grant: Any, result: Any) -> None:
        """Raise InvalidGrant for a missing, malformed, wrong or unexpected verifier (RFC 7636 section 4.6).

        The stock method answers invalid_request for all but a wrong one.
        """
        request = grant.request
        row = request.authorization_code.row
        codes.require_verifier(request.client.view, row, request.form.get("code_verifier"))
        super().validate_code_verifier(grant, result)
        request.protocol.used_pkce = row.code_challenge is not None


class IdTokens:
    """The ID token methods that both of Authlib's extensions need."""

    def encode_id_token(self, token: IssuedToken, request: Any) -> str:
        """Sign an ID token for the claimed grant.

        The stock method lets claims of the user overwrite those of the protocol (OI-2), takes the current time for an
        unknown auth_time, and signs EdDSA with a deprecation warning each time.
        """
        return issuance.sign_id_token(
            request.client.view, request.user.new, access_token=token["access_token"]
        )


class OpenIDCodeFlow(IdTokens, OpenIDCode):
    """OpenID Connect for the authorization code grant (OIDC Core section 3.1)."""

    def exists_nonce(self, nonce: str, request: Any) -> bool:
        """Return False: a code is redeemed once, so an ID token's nonce cannot be replayed."""
        return False


class OpenIDDevice(IdTokens, OpenIDToken):
    """An ID token for the device grant."""


class RefreshTokenOfGrant(TokenMixin):
    """A refresh token as Authlib needs to see it."""

    def __init__(self, credential: RefreshCredential) -> None:
        self.credential = credential

    def check_client(self, client: ProtocolClient) -> bool:
        """Return whether the token was issued to the client."""
        return bool(self.credential.row.client_id == client.view.id)

    def get_scope(self) -> str:
        """Return the scopes that a refresh may ask for."""
        return format_scope(self.credential.scopes)


class RefreshTokenGrant(grants.RefreshTokenGrant):
    """Refresh tokens (RFC 6749 section 6), rotated by one compare-and-set (RFC 9700 section 4.14.2)."""

    TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> RefreshTokenOfGrant:
        """Return the client's refresh token. Reuse revokes its grant (RF-4)."""
        scopes = parse_scope(self.request.payload.scope or "")
        if scopes is None:
            raise InvalidScope("The parameter scope is malformed.").with_cause(
                "parameter_malformed", received="scope"
            )
        authenticated = self.client.authenticated
        found = refresh_tokens.find_refresh_token(
            self.request.protocol.actor_of(authenticated),
            authenticated,
            refresh_token,
            scopes,
            _requested_resources(),
        )
        if isinstance(found, refresh_tokens.Reused):
            raise CommittedRefusal(InvalidGrant().with_cause("refresh_reuse"))
        return RefreshTokenOfGrant(found)

    def authenticate_user(self, refresh_token: RefreshTokenOfGrant) -> RefreshCredential:
        """Return the credential, which carries the user and the grant."""
        return refresh_token.credential

    def save_token(self, token: IssuedToken) -> None:
        """Keep the token until the old one is replaced: see ``revoke_old_credential``."""
        self.prepared = token.prepared

    def revoke_old_credential(self, refresh_token: RefreshTokenOfGrant) -> None:
        """Replace the old refresh token and store the new tokens. Raises OutdatedRead if another request was faster.

        In this order: a stored access token would lock the grant's row, which this updates (deadlocks).
        """
        if refresh_token.credential.earlier_answer is None:
            refresh_tokens.rotate(self.client.authenticated, refresh_token.credential, self.prepared)


class DeviceCredential(DeviceCredentialMixin):
    """A device code as Authlib needs to see it. The user code is stored as a digest, so the id replaces it."""

    def __init__(self, client: ProtocolClient, poll: DevicePoll) -> None:
        self.client, self.poll = client, poll
        self.slower_interval: int | None = None

    @property
    def lifetime_seconds(self) -> int:
        """The lifetime of the code."""
        return device_polls.lifetime_seconds(self.client.view, self.poll)

    def get_client_id(self) -> str:
        """Return the client's id: ``find_device_code`` finds only codes of this client."""
        return self.client.get_client_id()

    def get_scope(self) -> str:
        """Return nothing: the claimed grant carries the scopes."""
        return ""

    def get_user_code(self) -> str:
        """Return the id of the code."""
        return str(self.poll.id)

    def is_expired(self) -> bool:
        """Return whether the code has expired."""
        return device_polls.is_expired(self.client.view, self.poll)


class DeviceCodeGrant(AuthlibDeviceCodeGrant):
    """The device code grant (RFC 8628 section 3.4)."""

    TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS

    def query_device_credential(self, device_code: str) -> DeviceCredential:
        """Return the client's device code. Raises InvalidGrant."""
        client = self.request.protocol.client
        poll = device_polls.find_device_code(client.view, device_code)
        self.request.credential = DeviceCredential(client, poll)
        return self.request.credential

    def query_user_grant(self, user_code: str) -> tuple[ClaimedGrant | None, bool] | None:
        """Return the user's decision, and claim an allowed code at once. Raises InvalidGrant."""
        credential = self.request.credential
        if credential.poll.is_allowed is None:
            return None
        if not credential.poll.is_allowed:
            return None, False
        claimed = device_polls.claim_device_code(
            credential.client.authenticated, credential.poll, _requested_resources()
        )
        return claimed, True

    def should_slow_down(self, credential: DeviceCredential) -> bool:
        """Record the poll and return whether it came too early."""
        credential.slower_interval = device_polls.record_poll(credential.client.view, credential.poll)
        return credential.slower_interval is not None


class TokenExchangeGrant(BaseGrant, TokenEndpointMixin):
    """Token exchange (RFC 8693), which Authlib does not have."""

    GRANT_TYPE = TOKEN_EXCHANGE
    TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS

    def validate_token_request(self) -> None:
        """Authenticate the client. Raises UnauthorizedClient."""
        client = self.authenticate_token_endpoint_client()
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClient(self.GRANT_TYPE)
        self.request.client = client

    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        """Exchange the token in one transaction."""
        request = self.request.protocol
        exchanged = token_exchange.exchange(
            self.client.authenticated,
            parse_exchange_request(self.request.form),
            ip_address=request.ip_address,
            request_id=request.request_id,
        )
        return 200, exchanged.as_document(), self.TOKEN_RESPONSE_HEADER


def _requested_resources() -> tuple[str, ...]:
    sent = current_request().parameters.get("resource")
    return () if sent is None else parse_resources(sent)
