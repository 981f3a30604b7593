"""OpenAPI: the pushed authorization request endpoint (RFC 9126)."""

from __future__ import annotations

from app.api.openapi.oauth.endpoints import AUTHORIZATION, preflight
from app.api.openapi.oauth.parts import (
    CLIENT,
    CLIENT_FIELDS,
    Place,
    endpoint,
    everywhere,
    form,
    plain,
    refusals,
)
from app.api.openapi.parts import Schema, closed, path_item, ref, text

SCHEMAS: Schema = {
    "PushedRequest": closed(
        {
            "request_uri": text("What the browser brings to the authorization endpoint, with the client_id."),
            "expires_in": {"type": "integer", "description": "In seconds; until then it must be brought."},
        }
    ),
}
_FIELDS = {name: schema for name, schema in AUTHORIZATION.items() if name != "request_uri"} | CLIENT_FIELDS


def _at(place: Place) -> Schema:
    return {
        f"{place.prefix}/oauth/par": path_item(
            place.parameters,
            post=endpoint(
                place.called("pushRequest"),
                "Push an authorization request (RFC 9126)",
                answers={
                    "201": plain("The request waits.", ref("PushedRequest")),
                    **refusals("400", "401", "405", "413", "429", "500", "503", *place.missing),
                },
                security=CLIENT,
                requestBody=form(_FIELDS),
            ),
            options=preflight(place.called("preflightPush")),
        )
    }


PATHS: Schema = everywhere(_at)
