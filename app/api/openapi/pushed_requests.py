"""OpenAPI: the pushed authorization request endpoint (RFC 9126)."""

from __future__ import annotations

from app.api.openapi.oauth import AUTHORIZATION, preflight
from app.api.openapi.oauth_parts import CLIENT, CLIENT_FIELDS, endpoint, form, plain, refusals
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


def _of(prefix: str, name: str) -> Schema:
    under_issuer = ("404",) if name else ()
    return {
        f"{prefix}/oauth/par": path_item(
            ("OrganizationId",) if name else (),
            post=endpoint(
                f"{name}PushRequest" if name else "pushRequest",
                "Push an authorization request (RFC 9126)",
                answers={
                    "201": plain("The request waits.", ref("PushedRequest")),
                    **refusals("400", "401", "405", "413", "429", "500", "503", *under_issuer),
                },
                security=CLIENT,
                requestBody=form(_FIELDS),
            ),
            options=preflight(f"{name}PreflightPush" if name else "preflightPush"),
        )
    }


PATHS: Schema = {**_of("", ""), **_of("/organizations/{id}", "organization")}
