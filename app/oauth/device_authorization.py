"""The device authorization endpoint (RFC 8628 section 3.1), for devices without a browser."""

from __future__ import annotations

from typing import Any

from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint as AuthlibDeviceAuthorizationEndpoint

from app.oauth.client_authentication import (
    AUTH_METHODS,
    ProtocolClient,
    authenticate,
    retry_with_fresh_client,
)
from app.oauth.errors import DEVICE_CODE
from app.oauth.protocol_request import ProtocolRequest, current_request
from app.oauth.protocol_response import ProtocolResponse, error_response
from app.oauth.request_parsing import parse_form
from app.oauth.server import checked_response, server
from app.operations.authorization import device_codes
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store.transactions import transaction
from app.rules.authorization.device_codes import format_user_code, generate_user_code
from app.rules.clients.client_scopes import scopes_for_a_user
from app.rules.clients.resource_indicators import parse_resources
from app.rules.errors import DomainError, TooManyRequests
from app.rules.oauth_errors import UnauthorizedClient

MAX_DRAWS = 5


def page_of(organization: OrganizationSnapshot) -> str:
    """Return the URL that the device shows (``verification_uri``)."""
    return f"{organization.base_url}/organizations/{organization.slug}/device"


class DeviceAuthorizationEndpoint(AuthlibDeviceAuthorizationEndpoint):
    """Issues a device code to poll with, and a shorter user code to enter elsewhere."""

    CLIENT_AUTH_METHODS = AUTH_METHODS

    @property
    def EXPIRES_IN(self) -> int:  # noqa: N802 - Authlib's name
        """The lifetime in seconds that the organization set."""
        return int(self._client.view.organization.settings["oauth"]["device_code_ttl_seconds"])

    @property
    def INTERVAL(self) -> int:  # noqa: N802 - Authlib's name
        """The seconds between two polls that the organization set."""
        return int(self._client.view.organization.settings["oauth"]["device_poll_interval_seconds"])

    @property
    def _client(self) -> ProtocolClient:
        return authenticate(current_request())

    def get_verification_uri(self) -> str:
        """Return the organization's page for user codes."""
        return page_of(self._client.view.organization)

    def generate_device_code(self) -> str:
        """Return a random code that names its organization."""
        return device_codes.generate_device_code(self._client.view.organization)

    def generate_user_code(self) -> str:
        """Return a random code as people read it."""
        return format_user_code(generate_user_code())

    def save_device_credential(self, client_id: str, scope: str | None, data: dict[str, Any]) -> None:
        """Store both codes. Raises UnauthorizedClient, InvalidScope, InvalidTarget, UserCodeTaken."""
        request, client = current_request(), self._client
        if not client.check_grant_type(DEVICE_CODE):
            raise UnauthorizedClient(DEVICE_CODE)
        device_codes.store_device_code(
            request.actor_of(client.authenticated),
            client.view,
            scopes_for_a_user(scope or "", client.view.document["scopes"]),
            device_code=data["device_code"],
            user_code=data["user_code"],
            resources=parse_resources(request.parameters.get("resource", "")),
        )


server.register_endpoint(DeviceAuthorizationEndpoint)


def authorize_device(request: ProtocolRequest) -> ProtocolResponse:
    """Return a device code and a user code, after the commit."""
    try:
        parse_form(request)
        response = retry_with_fresh_client(request, lambda: _authorize_device(request))
    except DomainError as error:
        return error_response(error, request)
    request.note_use()
    return response


def _authorize_device(request: ProtocolRequest) -> Any:
    authenticate(request)
    for _ in range(MAX_DRAWS):
        try:
            return checked_response(_create_response(request))
        except device_codes.UserCodeTaken:
            continue
    raise TooManyRequests("No code is available at the moment. Try again.", retry_after=1)


@transaction
def _create_response(request: ProtocolRequest) -> Any:
    return server.create_endpoint_response("device_authorization", request)
