"""OpenAPI: the device authorization endpoint (RFC 8628)."""

from __future__ import annotations

from app.api.openapi.oauth.parts import (
    CLIENT,
    CLIENT_FIELDS,
    Place,
    endpoint,
    everywhere,
    form,
    plain,
    refusals,
    words,
)
from app.api.openapi.parts import Schema, closed, path_item, ref, text

SCHEMAS: Schema = {
    "DeviceAuthorization": closed(
        {
            "device_code": text("What the device polls the token endpoint with."),
            "user_code": text("What the person enters."),
            "verification_uri": text("Where they enter it."),
            "verification_uri_complete": text("The same, with the code filled in; for a QR code."),
            "expires_in": {"type": "integer", "description": "In seconds."},
            "interval": {"type": "integer", "description": "Seconds between two polls."},
        }
    ),
}
_FIELDS = {"scope": words("scope"), "resource": words("resource", "RFC 8707."), **CLIENT_FIELDS}


def _at(place: Place) -> Schema:
    return {
        f"{place.prefix}/oauth/device_authorization": path_item(
            place.parameters,
            post=endpoint(
                place.called("authorizeDevice"),
                "Begin to sign in a device (RFC 8628)",
                answers={
                    "200": plain("The codes.", ref("DeviceAuthorization")),
                    **refusals("400", "401", "405", "413", "429", "500", "503", *place.missing),
                },
                security=CLIENT,
                requestBody=form(_FIELDS, "scope"),
            ),
        )
    }


PATHS: Schema = everywhere(_at)
