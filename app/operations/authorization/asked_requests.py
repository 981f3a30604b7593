"""The one record of an authorization request, however it came: by query, form, request object or push."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from app.operations.authorization import pushed_requests, request_objects
from app.operations.directory import ClientView
from app.rules.oauth_errors import AuthorizationRefusal
from app.rules.registration.demands import requires


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """``sent`` are the parameters that count. ``refusal``, where there is one, is what the client is to be told.

    It may be told by redirect only once client and redirect URI were found right; then ``sent`` are the parameters
    that came openly.
    """

    sent: Mapping[str, str]
    pushed_id: UUID | None = None
    refusal: AuthorizationRefusal | None = None


def read_asked(client: ClientView, sent: Mapping[str, str]) -> AskedRequest:
    """The request that a browser brought to the authorization endpoint.

    Behind a ``request_uri`` and inside a request object, what came beside them counts for nothing but the
    ``client_id``. Raises PageRefusal for a ``request_uri`` of ours that counts no longer.
    """
    demands = requires(client.document, client.organization.settings)
    if "request_uri" in sent:
        if "request" in sent:
            return _refused(sent, "invalid_request", "Send request or request_uri, not both.")
        if not sent["request_uri"].startswith(pushed_requests.PREFIX):
            # Nothing is fetched: the address could be anybody's (OI-4).
            return _refused(
                sent, "request_uri_not_supported", "The request_uri must come from a pushed request."
            )
        pushed = pushed_requests.find_pushed_request(client, sent["request_uri"])
        return AskedRequest(pushed.sent, pushed.id)
    if demands.pushed_requests:
        words = "The request must be pushed first (RFC 9126)."
        return AskedRequest(
            sent, refusal=AuthorizationRefusal("invalid_request", words).because("par_required")
        )
    return _opened(client, sent)


def read_pushed(client: ClientView, sent: Mapping[str, str]) -> AskedRequest:
    """The request that a client pushes."""
    if "request_uri" in sent:
        return _refused(
            sent, "invalid_request", "A pushed request holds no request_uri (RFC 9126 section 2.1)."
        )
    return _opened(client, sent)


def _opened(client: ClientView, sent: Mapping[str, str]) -> AskedRequest:
    if "request" in sent:
        try:
            return AskedRequest(request_objects.parameters_of(client, sent["request"]))
        except AuthorizationRefusal as refusal:
            return AskedRequest(sent, refusal=refusal)
    if requires(client.document, client.organization.settings).request_objects:
        return _refused(sent, "invalid_request", "The request must be a signed request object (RFC 9101).")
    return AskedRequest(sent)


def _refused(sent: Mapping[str, str], code: str, words: str) -> AskedRequest:
    refusal = AuthorizationRefusal(code, words).because("request_object_refused")
    return AskedRequest(sent, refusal=refusal)
