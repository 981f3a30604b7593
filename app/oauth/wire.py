"""What comes over the wire, read strictly before Authlib sees it.

Authlib reads ``request.values``, which merges query and form and keeps the first of two; undecodable bytes become a
500. Here every endpoint that takes a form takes a form alone, each parameter once, in UTF-8.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote_plus

from authlib.oauth2.rfc6749 import OAuth2Request
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from flask import current_app, request

from app.config import Config
from app.operations.client_authentication import NONE, Presented
from app.rules.oauth_errors import InvalidClient, OAuthRefusal

FORM = "application/x-www-form-urlencoded"
BASIC, POST = "client_secret_basic", "client_secret_post"
MOST_FIELDS = 100


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by name, empty ones left out (RFC 6749 section 3.1), and the names that came more than once."""

    sent: Mapping[str, str]
    repeated: frozenset[str]


class WireRequest(OAuth2Request):
    """A request in Authlib's terms, made of parameters that were already read."""

    def __init__(self, sent: Mapping[str, str]) -> None:
        super().__init__(method="POST", uri="https://gatehouse.invalid/", headers={})
        self.payload = BasicOAuth2Payload(sent)
        self._form = sent

    @property
    def form(self) -> Mapping[str, str]:
        """The parameters."""
        return self._form


def read_form() -> Mapping[str, str]:
    """The parameters of a form-encoded POST. Raises OAuthRefusal for anything else (ST-2)."""
    require_secure()
    if request.query_string:
        raise OAuthRefusal("Parameters belong in the body; the address takes no query.")
    # Almost every client sends it without parameters; the full parse is for the others.
    if request.environ.get("CONTENT_TYPE") != FORM and request.mimetype != FORM:
        raise OAuthRefusal(f"The body must be {FORM}.")
    parameters = _parsed(request.get_data(cache=False))
    if parameters.repeated:
        raise OAuthRefusal("A parameter was sent more than once.")
    return parameters.sent


def read_authorization_request() -> Parameters:
    """The parameters of an authorization request, by GET or by form POST (OIDC Core 3.1.2.1)."""
    require_secure()
    if request.method == "GET":
        return _parsed(request.query_string)
    if request.mimetype != FORM:
        raise OAuthRefusal(f"The body must be {FORM}.")
    return _parsed(
        request.get_data(cache=False) + (b"&" + request.query_string if request.query_string else b"")
    )


def read_client(sent: Mapping[str, str]) -> Presented:
    """How the client authenticates. Raises OAuthRefusal when it does so twice, InvalidClient when not at all."""
    header = request.headers.get("Authorization")
    if header is None:
        client_id = sent.get("client_id")
        if client_id is None:
            raise InvalidClient
        secret = sent.get("client_secret")
        return Presented(NONE, client_id) if secret is None else Presented(POST, client_id, secret)
    if "client_secret" in sent:
        raise OAuthRefusal("The client authenticated twice: use the header or the body, not both.")
    presented = _basic(header)
    if sent.get("client_id", presented.client_id) != presented.client_id:
        raise OAuthRefusal("The client_id of the body is not the one of the header.")
    return presented


def require_secure() -> None:
    """Plain http is refused, not redirected, where secrets travel (TR-1)."""
    config: Config = current_app.config["GATEHOUSE"]
    if config.is_https and request.scheme != "https":
        raise OAuthRefusal("Use https. Behind a proxy, it must send X-Forwarded-Proto and be counted.")


def _basic(header: str) -> Presented:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise InvalidClient
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidClient from None
    client_id, colon, secret = decoded.partition(":")
    if not colon:
        raise InvalidClient
    # Both halves are form-encoded first (RFC 6749 section 2.3.1): a plus is a space.
    return Presented(BASIC, unquote_plus(client_id), unquote_plus(secret))


def _parsed(encoded: bytes) -> Parameters:
    try:
        pairs = parse_qsl(
            encoded.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise OAuthRefusal("The parameters must be form-encoded UTF-8, at most 100 of them.") from None
    sent: dict[str, str] = {}
    seen: set[str] = set()
    repeated: set[str] = set()
    for name, value in pairs:
        if "\0" in value or "\0" in name:
            raise OAuthRefusal("A parameter holds a NUL character.")
        if name in seen:
            repeated.add(name)
        elif value:
            sent[name] = value
        seen.add(name)
    return Parameters(sent, frozenset(repeated))
