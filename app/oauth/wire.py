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

from app import config
from app.oauth.call import Call
from app.operations.clients.client_authentication import NONE, Presented
from app.rules.clients.client_assertions import TYPE as ASSERTION_TYPE
from app.rules.clients.client_assertions import subject_of_assertion
from app.rules.clients.client_types import PRIVATE_KEY_JWT
from app.rules.oauth_errors import InvalidClient, OAuthError

FORM = "application/x-www-form-urlencoded"
BASIC, POST = "client_secret_basic", "client_secret_post"
MOST_FIELDS = 100
# What may come several times (RFC 8707 section 2, RFC 8693 section 2.1); neither holds a space, which joins them.
REPEATABLE = frozenset({"resource", "audience"})


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by name, empty ones left out (RFC 6749 section 3.1), and the names that came more than once."""

    sent: Mapping[str, str]
    repeated: frozenset[str]


class WireRequest(OAuth2Request):
    """A request in Authlib's terms, made of parameters that were already read."""

    def __init__(self, sent: Mapping[str, str], call: Call) -> None:
        # Authlib's own start would look at the environment for each request, to see whether http is allowed.
        self.method, self.uri = "POST", "https://gatehouse.invalid/"
        self.headers: dict[str, str] = {}
        self.client = self.user = self.auth_method = None
        self.authorization_code = self.refresh_token = self.credential = None
        self._scope = self._body = None
        self.payload = BasicOAuth2Payload(sent)
        self._form = sent
        self.call = call

    @property
    def form(self) -> Mapping[str, str]:
        """The parameters."""
        return self._form


def read_form(call: Call) -> Mapping[str, str]:
    """The parameters of a form-encoded POST. Raises OAuthError for anything else (ST-2)."""
    require_secure(call)
    if call.has_query:
        raise OAuthError("Parameters belong in the body; the address takes no query.").with_cause(
            "parameters_in_address"
        )
    if call.content_type != FORM:
        raise OAuthError(f"The body must be {FORM}.").with_cause(
            "wrong_content_type", received=call.content_type, expected=FORM
        )
    parameters = _parsed(call.read_body())
    call.sent = parameters.sent
    if parameters.repeated:
        raise OAuthError("A parameter was sent more than once.").with_cause(
            "parameter_repeated", received=", ".join(sorted(parameters.repeated))
        )
    return parameters.sent


def read_authorization_request(call: Call) -> Parameters:
    """The parameters of an authorization request, by GET or by form POST (OIDC Core 3.1.2.1)."""
    require_secure(call)
    query = call.environ.get("QUERY_STRING", "").encode("latin-1")
    if call.method == "GET":
        return _parsed(query)
    if call.content_type != FORM:
        raise OAuthError(f"The body must be {FORM}.")
    return _parsed(call.read_body() + (b"&" + query if query else b""))


def read_client(call: Call, sent: Mapping[str, str]) -> Presented:
    """How the client authenticates. Raises OAuthError when it does so twice, InvalidClient when not at all."""
    header = call.authorization
    if "client_assertion" in sent or "client_assertion_type" in sent:
        return _assertion(call, sent)
    if header is None:
        client_id = sent.get("client_id")
        if client_id is None:
            raise InvalidClient
        secret = sent.get("client_secret")
        return Presented(NONE, client_id) if secret is None else Presented(POST, client_id, secret)
    if "client_secret" in sent:
        raise OAuthError("The client authenticated twice: use the header or the body, not both.").with_cause(
            "authenticated_twice"
        )
    presented = _basic(header)
    if sent.get("client_id", presented.client_id) != presented.client_id:
        raise OAuthError("The client_id of the body is not the one of the header.").with_cause(
            "authenticated_twice", received=sent["client_id"], expected=presented.client_id
        )
    return presented


def require_secure(call: Call) -> None:
    """Plain http is refused, not redirected, where secrets travel (TR-1)."""
    if config.current().is_https and not call.is_secure:
        raise OAuthError(
            "Use https. Behind a proxy, it must send X-Forwarded-Proto and be counted."
        ).with_cause("http_behind_proxy", received="http", expected="https")


def _assertion(call: Call, sent: Mapping[str, str]) -> Presented:
    if call.authorization is not None or "client_secret" in sent:
        raise OAuthError("The client authenticated twice: use one method.").with_cause("authenticated_twice")
    assertion = sent.get("client_assertion")
    if assertion is None or "client_assertion_type" not in sent:
        raise OAuthError("client_assertion and client_assertion_type belong together.").with_cause(
            "parameter_missing", expected=("client_assertion", "client_assertion_type")
        )
    if sent["client_assertion_type"] != ASSERTION_TYPE:
        raise InvalidClient().with_cause(
            "client_assertion_malformed", expected=f"client_assertion_type: {ASSERTION_TYPE}"
        )
    # A client_id beside it must be the assertion's own (RFC 7521 section 4.2); whoever verifies it sees to that.
    client_id = sent.get("client_id") or subject_of_assertion(assertion)
    return Presented(
        PRIVATE_KEY_JWT, client_id, assertion=assertion, url=call.url, is_claimed=call.has_claimed_assertion
    )


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


def _pairs(encoded: bytes) -> list[tuple[str, str]]:
    text = encoded.decode("ascii")
    if "%" in text or "+" in text or text.count("&") >= MOST_FIELDS:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    # Nothing is encoded in it, as in most token requests: what is left of the parser's work is this.
    parted = [part.partition("=") for part in text.split("&") if part]
    return [(name, value) for name, equals, value in parted if name or equals]


def _parsed(encoded: bytes) -> Parameters:
    try:
        pairs = _pairs(encoded)
    except ValueError:
        raise OAuthError("The parameters must be form-encoded UTF-8, at most 100 of them.") from None
    sent: dict[str, str] = {}
    seen: set[str] = set()
    repeated: set[str] = set()
    for name, value in pairs:
        if "\0" in value or "\0" in name:
            raise OAuthError("A parameter holds a NUL character.")
        if name in seen and name in REPEATABLE and value:
            sent[name] = f"{sent[name]} {value}" if name in sent else value
        elif name in seen and name not in REPEATABLE:
            repeated.add(name)
        elif value:
            sent[name] = value
        seen.add(name)
    return Parameters(sent, frozenset(repeated))
