"""The device code grant (RFC 8628 section 3.4): the device asks again and again until somebody has decided."""

from __future__ import annotations

from typing import Any

from authlib.oauth2.rfc8628 import DeviceCodeGrant as AuthlibGrant

from app.oauth.grants.token_request import TokenRequest
from app.operations.authorization import device_polls
from app.rules.clients.resource_indicators import parse_resources
from app.rules.oauth_errors import OAuthError


class DeviceCodeGrant(TokenRequest, AuthlibGrant):
    """Tokens for a device that was allowed elsewhere; ``operations/authorization/device_polls`` decides."""

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """A look at the code; once it is allowed, one transaction, then the answer."""
        form = self.request.form
        if "device_code" not in form:
            raise OAuthError("The parameter device_code is missing.").with_cause(
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
