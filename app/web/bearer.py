"""Access tokens that callers present to this service, by Bearer (RFC 6750) or DPoP (RFC 9449), and nothing else (CF-3).

Authlib's ResourceProtector guards the management API and userinfo with the validators of this module.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_plus

from authlib.integrations.flask_oauth2 import ResourceProtector
from authlib.oauth2 import OAuth2Error, rfc6750
from authlib.oauth2.rfc6749 import TokenMixin, UnsupportedTokenTypeError
from authlib.oauth2.rfc6750 import InvalidTokenError
from flask import request as flask_request
from msgspec import Struct, field

from app.config import current
from app.operations.clients import dpop_proofs
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.grants.grants import TokenSnapshot
from app.operations.sign_in.actor_access import enter_organization
from app.operations.store.audit import actor_public_id
from app.operations.store.request_limits import require_request_allowed
from app.operations.tokens.tokens import actor_of_token, find_management_token
from app.rules.actor import Actor
from app.rules.errors import InvalidInput, Unauthenticated
from app.web.headers import require_allowed_origin
from app.web.json_api import query_parameters
from app.web.request_log import note, request_id

FindToken = Callable[[str], TokenSnapshot | None]

ACTING = "organization_id"
# Schemes are case-insensitive (RFC 9110 section 11.1).
_CREDENTIALS = re.compile(r"(?:bearer|dpop) +[A-Za-z0-9._~+/-]+=* *", re.IGNORECASE)


class AccessToken(TokenMixin):
    """A valid access token as Authlib needs to see it; tokens that are not valid are not found."""

    def __init__(self, value: str, view: TokenSnapshot) -> None:
        self.value, self.view = value, view
        self.scope = " ".join(view.scopes)

    def get_scope(self) -> str:
        """Return the scopes of the token."""
        return self.scope

    def is_expired(self) -> bool:
        """Return False."""
        return False

    def is_revoked(self) -> bool:
        """Return False."""
        return False

    def get_user(self) -> TokenSnapshot:
        """Return the token, which carries what is known of its user."""
        return self.view

    def get_client(self) -> Any:
        """Return the client without metadata: userinfo is signed by this service, with ``kid`` and ``typ``."""
        return SimpleNamespace(client_id=self.view.client.client_id, client_metadata={})


class BearerTokenValidator(rfc6750.BearerTokenValidator):
    """Accepts tokens that are not bound to a key."""

    def __init__(self, find_token: FindToken) -> None:
        super().__init__()
        self.find_token = find_token

    def authenticate_token(self, token_string: str) -> AccessToken | None:
        """Return the token if it is valid."""
        view = self.find_token(token_string)
        return None if view is None else AccessToken(token_string, view)

    def validate_request(self, request: Any) -> None:
        """Raise UnsupportedTokenTypeError unless the header has the syntax of RFC 6750 section 2.1."""
        header = request.headers.get("Authorization")
        if header is not None and _CREDENTIALS.fullmatch(header) is None:
            raise UnsupportedTokenTypeError

    def validate_token(
        self, token: AccessToken | None, scopes: Any, request: Any, *, is_proven: bool = False
    ) -> None:
        """Require the key of a bound token, then do Authlib's checks.

        ``is_proven`` skips a proof that was used up before. Raises Unauthenticated and ProofRefused (DC-6).
        """
        if token is not None and not is_proven:
            self.require_key(token, request)
        super().validate_token(token, scopes, request)

    def require_key(self, token: AccessToken, request: Any) -> None:
        """Raise Unauthenticated for a token that is bound to a key."""
        if token.view.dpop_jkt is not None:
            raise Unauthenticated(
                "The access token is bound to a key. Send it with the scheme DPoP and a proof."
            )


class DPoPTokenValidator(BearerTokenValidator):
    """Accepts tokens that are bound to the key of the DPoP proof; ``find_path`` returns the path of the request."""

    TOKEN_TYPE = "dpop"

    def __init__(self, find_token: FindToken, find_path: Callable[[], str]) -> None:
        super().__init__(find_token)
        self.find_path = find_path

    def require_key(self, token: AccessToken, request: Any) -> None:
        """Raise unless the request's proof is by the token's key; several proofs are joined by a comma, and invalid."""
        dpop_proofs.require_holder(
            token.view,
            token=token.value,
            proof=request.headers.get("DPoP"),
            method=request.method,
            url=current().base_url + self.find_path(),
        )


def protect(
    protector: ResourceProtector, find_token: FindToken, find_path: Callable[[], str]
) -> ResourceProtector:
    """Register both validators with the protector.

    ``find_token`` returns the valid token of a string, ``find_path`` the path of the current request.
    """
    protector.register_token_validator(BearerTokenValidator(find_token))
    protector.register_token_validator(DPoPTokenValidator(find_token, find_path))
    return protector


_protector = protect(ResourceProtector(), find_management_token, lambda: flask_request.path)


class ApiContext(Struct, frozen=True):
    """An authenticated request: who acts, in which organization, and the checked query parameters."""

    actor: Actor
    organization: OrganizationSnapshot
    parameters: dict[str, str] = field(default_factory=dict)


def receive_call(parameters: Collection[str]) -> ApiContext:
    """Return an authenticated request to the management API. Raises Unauthenticated, so that the caller gets a 401.

    ``parameters`` are the query parameters of the endpoint. If ``organization_id`` is one of them, it selects the
    organization to act in, which only root may choose.
    """
    actor, organization = authenticate_caller()
    sent = query_parameters(parameters)
    named = sent.pop(ACTING, None)
    if named is not None:
        actor, organization = enter_organization(actor, named)
    return ApiContext(actor, organization, sent)


def authenticate_again(context: ApiContext) -> ApiContext:
    """Return the context after a body was received, which may take minutes, with the caller's current permissions.

    Raises Unauthenticated if the access token is no longer valid, NotFound if the caller may no longer act there.
    """
    actor, organization = authenticate_caller(is_proven=True)
    if context.organization.id != organization.id:
        actor, organization = enter_organization(actor, context.organization.slug)
    return ApiContext(actor, organization, context.parameters)


def authenticate_caller(*, is_proven: bool = False) -> tuple[Actor, OrganizationSnapshot]:
    """Return who calls, by the access token in the header. Raises Unauthenticated, also if only a cookie was sent.

    Raises OriginNotAllowed for a web page that the organization of the token does not list (CR-4), and TooManyRequests
    if the client sends more than its organization allows.

    ``is_proven`` means that the DPoP proof of this request was verified before: a proof can be used only once.
    """
    if len(flask_request.headers.getlist("Authorization")) > 1:
        raise InvalidInput("The header Authorization was sent twice.", field="Authorization")
    try:
        token = _protector.acquire_token(is_proven=is_proven)
    except InvalidTokenError:
        raise Unauthenticated(
            "The access token is invalid, expired, revoked, or not valid for the management API."
        ) from None
    except OAuth2Error:
        raise Unauthenticated(
            "Send an access token for the management API: Authorization: Bearer <token>."
        ) from None
    actor, organization = actor_of_token(
        token.view, ip_address=flask_request.remote_addr, request_id=request_id()
    )
    note(organization=organization.slug, actor=actor_public_id(actor))
    if not is_proven:
        client = token.view.client
        require_request_allowed(
            client.organization.id, client.organization.settings["limits"], client.client_id, actor.ip_address
        )
    require_allowed_origin(organization.settings["management_api"]["allowed_origins"])
    return actor, organization


def read_basic(header: str) -> tuple[str, str] | None:
    """Return (name, secret) of an ``Authorization: Basic`` header, or None when it is malformed."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    name, colon, secret = decoded.partition(":")
    # Both halves are form-encoded first (RFC 6749 section 2.3.1): a plus is a space.
    return (unquote_plus(name), unquote_plus(secret)) if colon else None
