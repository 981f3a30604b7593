"""Strict parsing of requests at the OAuth endpoints, before Authlib sees them.

Authlib reads ``request.values``, which merges query and form and keeps the first of two values; undecodable bytes
become a 500. Here every endpoint that takes a form takes only a form, each parameter once, in UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl

from authlib.oauth2.rfc6749 import JsonPayload, JsonRequest, OAuth2Payload, OAuth2Request
from msgspec import Struct

from app import config
from app.oauth.protocol_request import ProtocolRequest
from app.operations.clients.client_authentication import Presented
from app.rules.clients.client_assertions import TYPE as ASSERTION_TYPE
from app.rules.clients.client_assertions import subject_of_assertion
from app.rules.clients.client_types import BASIC, NONE, POST, PRIVATE_KEY_JWT
from app.rules.errors import InvalidClient, OAuthError
from app.web.bearer import read_basic

FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 100
# Parameters that may be repeated (RFC 8707 section 2, RFC 8693 section 2.1); their values are joined by spaces.
REPEATABLE = frozenset({"resource", "audience"})
# Authlib's constructor checks that the URL is secure, which ``require_https`` has decided: done once, not per request.
_URL = "https://gatehouse.invalid/"
_NEW_REQUEST = vars(OAuth2Request("POST", _URL))


class Parameters(Struct, frozen=True):
    """Parameters by name, empty ones left out (RFC 6749 section 3.1), and the names that were repeated."""

    sent: Mapping[str, str]
    repeated: frozenset[str]


class ParsedPayload(OAuth2Payload):
    """Parsed parameters in Authlib's terms, each of which was sent once."""

    data: Mapping[str, str] = MappingProxyType({})

    def __init__(self, data: Mapping[str, str]) -> None:
        self.data = data

    @property
    def datalist(self) -> dict[str, list[str]]:
        """The parameters with all of their values."""
        return {name: [value] for name, value in self.data.items()}


class ParsedOAuthRequest(OAuth2Request):
    """A parsed request in Authlib's terms; ``protocol`` is the HTTP request behind it."""

    def __init__(self, request: ProtocolRequest, parameters: Mapping[str, str] | None = None) -> None:
        self.__dict__.update(_NEW_REQUEST)
        self.protocol = request
        self.refusal: OAuthError | None = None
        self.payload = ParsedPayload(request.parameters if parameters is None else parameters)

    @property
    def form(self) -> Mapping[str, str]:
        """The parameters."""
        return self.payload.data


class ParsedJson(JsonPayload):
    """A parsed JSON object in Authlib's terms."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    @property
    def data(self) -> Mapping[str, Any]:
        """The object."""
        return self._data


class ParsedJsonRequest(JsonRequest):
    """A registration request in Authlib's terms; ``protocol`` is the HTTP request behind it."""

    def __init__(self, request: ProtocolRequest, data: Mapping[str, Any]) -> None:
        super().__init__(request.method, _URL)
        self.protocol = request
        self.payload = ParsedJson(data)


def parse_form(request: ProtocolRequest) -> Mapping[str, str]:
    """Return the parameters of a form-encoded POST. Raises OAuthError for anything else (ST-2)."""
    require_https(request)
    if request.content_type != FORM:
        raise OAuthError(f"The body must be {FORM}.").with_cause(
            "wrong_content_type", received=request.content_type, expected=FORM
        )
    parameters = _parsed(request.read_body())
    request.parameters = parameters.sent
    # After the body, which names the client in whose log the error is explained.
    if request.has_query and _has_oauth_parameters(request.environ["QUERY_STRING"]):
        raise OAuthError("Send the parameters in the body, not in the URL.").with_cause(
            "parameters_in_address"
        )
    if parameters.repeated:
        raise OAuthError("A parameter was sent more than once.").with_cause(
            "parameter_repeated", received=", ".join(sorted(parameters.repeated))
        )
    return parameters.sent


def parse_authorization_request(request: ProtocolRequest) -> Parameters:
    """Return the parameters of an authorization request, by GET or by form POST (OIDC Core 3.1.2.1)."""
    require_https(request)
    query = request.environ.get("QUERY_STRING", "").encode("latin-1")
    if request.method == "GET":
        return _parsed(query)
    if request.content_type != FORM:
        raise OAuthError(f"The body must be {FORM}.")
    return _parsed(request.read_body() + (b"&" + query if query else b""))


def parse_credentials(request: ProtocolRequest, parameters: Mapping[str, str]) -> Presented:
    """Return the credentials of the client.

    Raises OAuthError if the client uses two methods, InvalidClient if it uses none.
    """
    header = request.authorization
    if "client_assertion" in parameters or "client_assertion_type" in parameters:
        return _assertion(request, parameters)
    if header is None:
        client_id = parameters.get("client_id")
        if client_id is None:
            raise InvalidClient
        secret = parameters.get("client_secret")
        return Presented(NONE, client_id) if secret is None else Presented(POST, client_id, secret)
    if "client_secret" in parameters:
        raise OAuthError("The client authenticated twice: use the header or the body, not both.").with_cause(
            "authenticated_twice"
        )
    presented = _basic(header)
    if parameters.get("client_id", presented.client_id) != presented.client_id:
        raise OAuthError("The client_id in the body differs from the one in the header.").with_cause(
            "authenticated_twice", received=parameters["client_id"], expected=presented.client_id
        )
    return presented


def require_https(request: ProtocolRequest) -> None:
    """Raise OAuthError for plain http: it is rejected, not redirected, because secrets travel here (TR-1)."""
    if config.current().is_https and not request.is_secure:
        raise OAuthError(
            "Use https. A proxy must send X-Forwarded-Proto and be counted in GATEHOUSE_PROXY_HOPS."
        ).with_cause("http_behind_proxy", received="http", expected="https")


def _assertion(request: ProtocolRequest, parameters: Mapping[str, str]) -> Presented:
    if request.authorization is not None or "client_secret" in parameters:
        raise OAuthError("The client authenticated twice: use one method.").with_cause("authenticated_twice")
    assertion = parameters.get("client_assertion")
    if assertion is None or "client_assertion_type" not in parameters:
        raise OAuthError("Send both client_assertion and client_assertion_type, or neither.").with_cause(
            "parameter_missing", expected=("client_assertion", "client_assertion_type")
        )
    if parameters["client_assertion_type"] != ASSERTION_TYPE:
        raise InvalidClient().with_cause(
            "client_assertion_malformed", expected=f"client_assertion_type: {ASSERTION_TYPE}"
        )
    # A client_id beside it must be the assertion's own (RFC 7521 section 4.2); its verification checks that.
    client_id = parameters.get("client_id") or subject_of_assertion(assertion)
    return Presented(
        PRIVATE_KEY_JWT,
        client_id,
        assertion=assertion,
        url=request.url,
        is_claimed=request.has_claimed_assertion,
    )


def _basic(header: str) -> Presented:
    pair = read_basic(header)
    if pair is None:
        is_basic = header.lower().startswith("basic ")
        raise InvalidClient().with_cause(
            "parameter_malformed",
            received="a malformed Basic header" if is_basic else "another Authorization header",
            expected="Authorization: Basic base64(client_id:client_secret)",
        )
    client_id, secret = pair
    # Libraries send this for a public client: an empty secret is none (RFC 6749 section 2.3.1), as in the body.
    return Presented(BASIC, client_id, secret) if secret else Presented(NONE, client_id)


def _has_oauth_parameters(query: str) -> bool:
    """Return whether the query may have parameters of OAuth, whose registered names have no hyphen.

    Others are ignored (RFC 6749 section 3.2): MSAL adds ``client-request-id`` to each token request.
    """
    try:
        return any("-" not in name for name, _ in _pairs(query.encode("latin-1")))
    except ValueError:
        return True


def _pairs(encoded: bytes) -> list[tuple[str, str]]:
    text = encoded.decode("ascii")
    if "%" in text or "+" in text or text.count("&") >= MAX_FIELDS:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    # Nothing is percent-encoded, as in most token requests: splitting is all that is left of the parser's work.
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
            raise OAuthError("A parameter contains a NUL character.")
        if name in seen and name in REPEATABLE and value:
            sent[name] = f"{sent[name]} {value}" if name in sent else value
        elif name in seen and name not in REPEATABLE:
            repeated.add(name)
        elif value:
            sent[name] = value
        seen.add(name)
    return Parameters(sent, frozenset(repeated))
