"""The device authorization endpoint (RFC 8628 section 3.1): where a device without a browser begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from app.oauth.authentication import authenticate
from app.oauth.call import Answer, Call, answer, refusal_of
from app.oauth.client import ProtocolClient
from app.oauth.grants.device_code import DeviceCodeGrant
from app.oauth.wire import read_form
from app.operations import directory
from app.operations.devices import device_codes
from app.operations.directory import ClientView, OrganizationView
from app.operations.protocol import grants, usage
from app.rules.errors import DomainError, Unavailable
from app.rules.protocol.oauth_errors import InvalidScope, UnauthorizedClient
from app.rules.protocol.resource_indicators import parse_resources
from app.rules.protocol.scopes import beyond, parse_scope
from app.rules.protocol.user_codes import shown

MOST_VIEWS = 3


def authorize_device(call: Call) -> Answer:
    """A code to poll with, and a shorter one for a person to enter elsewhere."""
    try:
        document = _begin(call, read_form(call))
    except DomainError as error:
        return refusal_of(error, call)
    return answer(document)


def page_of(organization: OrganizationView) -> str:
    """The address that the device shows (``verification_uri``)."""
    return f"{organization.base_url}/organizations/{organization.slug}/device"


def _begin(call: Call, sent: Mapping[str, str]) -> dict[str, Any]:
    for _ in range(MOST_VIEWS):
        authenticated = authenticate(call, sent)
        client = authenticated.client
        try:
            if not ProtocolClient(client).check_grant_type(DeviceCodeGrant.GRANT_TYPE):
                raise UnauthorizedClient(DeviceCodeGrant.GRANT_TYPE)
            issued = device_codes.issue_device_code(
                grants.client_actor(client, call.address, call.request_id),
                client,
                _scopes(client, sent),
                resources=parse_resources(sent.get("resource", "")),
            )
        except (InvalidScope, UnauthorizedClient):
            # What was allowed a moment ago on another worker is not refused here for a cached view.
            fresh = directory.reread(client)
            if fresh is not None and fresh.version == client.version:
                raise
            continue
        usage.note_use(authenticated, call.address)
        page, user_code = page_of(client.organization), shown(issued.user_code)
        return {
            "device_code": issued.device_code,
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?{urlencode({'user_code': user_code})}",
            "expires_in": issued.expires_in,
            "interval": issued.interval,
        }
    raise Unavailable


def _scopes(client: ClientView, sent: Mapping[str, str]) -> tuple[str, ...]:
    scopes = parse_scope(sent.get("scope", ""))
    if not scopes:
        raise InvalidScope("The parameter scope is missing, empty or malformed.").because(
            "parameter_missing", expected="scope"
        )
    refused = beyond(scopes, client.document["scopes"])
    if refused:
        raise InvalidScope("A scope was asked for that the client was not registered for.").because(
            "scope_not_allowed", received=" ".join(refused), expected=client.document["scopes"]
        )
    return scopes
