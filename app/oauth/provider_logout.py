"""Back-channel logout requests of an organization's identity providers (OpenID Connect Back-Channel Logout 1.0).

Here this service is the client of the provider, not the provider.
"""

from __future__ import annotations

from app.oauth.protocol_request import ProtocolRequest
from app.oauth.protocol_response import ProtocolResponse, json_response, unlogged_error_response
from app.oauth.request_parsing import parse_form
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.provider_logout import end_sessions_of_provider
from app.rules.actor import Actor
from app.rules.errors import DomainError, OAuthError


def end_sessions(request: ProtocolRequest, provider: str) -> ProtocolResponse:
    """End what the logout token names, and respond as section 2.8 says: an empty object, or the error with 400."""
    try:
        logout_token = parse_form(request).get("logout_token")
        if logout_token is None:
            raise OAuthError("The parameter logout_token is missing.")
        organization = get_organization_by_slug(request.organization_slug or "")
        actor = Actor.anonymous(organization.id, request.ip_address, request.request_id)
        end_sessions_of_provider(actor, organization, provider, logout_token)
        return json_response({}, 200)
    except DomainError as error:
        return unlogged_error_response(error)
