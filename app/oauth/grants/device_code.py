"""The device code grant (RFC 8628 section 3.4): the device asks again and again until somebody has decided."""

from __future__ import annotations

from typing import Any, ClassVar

from authlib.oauth2.rfc8628 import DeviceCodeGrant as AuthlibGrant

from app.operations.devices import device_polls
from app.rules.protocol.oauth_errors import OAuthRefusal, UnauthorizedClient
from app.rules.protocol.resource_indicators import parse_resources


class DeviceCodeGrant(AuthlibGrant):
    """Tokens for a device that was allowed elsewhere; ``operations/devices/device_polls`` decides."""

    TOKEN_ENDPOINT_AUTH_METHODS: ClassVar = [
        "client_secret_basic",
        "client_secret_post",
        "private_key_jwt",
        "none",
    ]

    def validate_token_request(self) -> None:
        """The client is who it says and may use this grant."""
        client = self.authenticate_token_endpoint_client()
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClient(self.GRANT_TYPE)
        self.request.client = client

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """A look at the code; once it is allowed, one transaction, then the answer."""
        form = self.request.form
        if "device_code" not in form:
            raise OAuthRefusal("The parameter device_code is missing.").because(
                "parameter_missing", expected="device_code"
            )
        answer = device_polls.redeem_device_code(
            self.request.client.authenticated,
            form["device_code"],
            parse_resources(form.get("resource", "")),
            address=self.request.call.address,
            request_id=self.request.call.request_id,
        )
        return 200, answer.as_document(), self.TOKEN_RESPONSE_HEADER
