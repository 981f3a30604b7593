"""The token endpoint (RFC 6749 section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Response, g, request

from app.oauth import cors
from app.oauth.server import GRANT_TYPES, refusal_of, server
from app.oauth.wire import WireRequest, read_form
from app.operations import directory, usage
from app.operations.directory import ClientView
from app.rules.errors import DomainError, Unavailable
from app.rules.oauth_errors import InvalidGrant, InvalidScope, OAuthRefusal, StaleView, UnauthorizedClient
from app.web.request_log import note

MOST_VIEWS = 3


def issue() -> Response:
    """Tokens, or the refusal; sent only after the commit."""
    try:
        sent = read_form()
        if "grant_type" not in sent:
            raise OAuthRefusal("The parameter grant_type is missing.")
        if sent["grant_type"] not in GRANT_TYPES:
            raise OAuthRefusal("The grant_type is not supported here.", code="unsupported_grant_type")
        response = _with_a_true_view(sent)
    except DomainError as error:
        response = refusal_of(error)
    authenticated = g.get("authenticated_client")
    if authenticated is not None:
        note(organization=authenticated.client.organization.slug, client=authenticated.client.client_id)
        if response.status_code == 200:
            usage.note_use(authenticated, request.remote_addr)
    return cors.allow_own_origins(response, authenticated)


def _with_a_true_view(sent: Mapping[str, str]) -> Response:
    for _ in range(MOST_VIEWS):
        try:
            return server.create_token_response(WireRequest(sent))
        except StaleView:
            # The cached client changed: nothing was written, and the next look decides afresh.
            directory.find_client(g.authenticated_client.client.client_id, fresh=True)
        except (InvalidGrant, InvalidScope, UnauthorizedClient):
            # What was allowed a moment ago on another worker is not refused here for a cached view.
            if not _is_stale(g.authenticated_client.client):
                raise
    raise Unavailable


def _is_stale(client: ClientView) -> bool:
    fresh = directory.find_client(client.client_id, fresh=True)
    return (
        fresh is None
        or fresh.version != client.version
        or fresh.organization.version != client.organization.version
    )
