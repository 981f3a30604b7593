"""The device authorization endpoint (RFC 8628 section 3.1): where a device without a browser begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from app.oauth.answer import Answer, answer, refusal_of
from app.oauth.authentication import authenticate
from app.oauth.call import Call
from app.oauth.client import ProtocolClient
from app.oauth.grants.device_code import DeviceCodeGrant
from app.oauth.second_look import with_second_look
from app.oauth.wire import read_form
from app.operations.authorization import device_codes
from app.operations.clients import client_usage
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import grants
from app.rules.authorization.device_codes import shown
from app.rules.clients.client_scopes import scopes_for_a_user
from app.rules.clients.resource_indicators import parse_resources
from app.rules.errors import DomainError
from app.rules.oauth_errors import UnauthorizedClient


def authorize_device(call: Call) -> Answer:
    """A code to poll with, and a shorter one for a person to enter elsewhere."""
    try:
        sent = read_form(call)
        document = with_second_look(call, lambda: _begin(call, sent))
    except DomainError as error:
        return refusal_of(error, call)
    return answer(document)


def page_of(organization: OrganizationSnapshot) -> str:
    """The address that the device shows (``verification_uri``)."""
    return f"{organization.base_url}/organizations/{organization.slug}/device"


def _begin(call: Call, sent: Mapping[str, str]) -> dict[str, Any]:
    authenticated = authenticate(call, sent)
    client = authenticated.client
    if not ProtocolClient(client).check_grant_type(DeviceCodeGrant.GRANT_TYPE):
        raise UnauthorizedClient(DeviceCodeGrant.GRANT_TYPE)
    issued = device_codes.issue_device_code(
        grants.client_actor(client, call.address, call.request_id),
        client,
        scopes_for_a_user(sent.get("scope", ""), client.document["scopes"]),
        resources=parse_resources(sent.get("resource", "")),
    )
    client_usage.record_client_use(authenticated, call.address)
    page, user_code = page_of(client.organization), shown(issued.user_code)
    return {
        "device_code": issued.device_code,
        "user_code": user_code,
        "verification_uri": page,
        "verification_uri_complete": f"{page}?{urlencode({'user_code': user_code})}",
        "expires_in": issued.expires_in,
        "interval": issued.interval,
    }
