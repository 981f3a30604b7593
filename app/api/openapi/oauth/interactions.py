"""OpenAPI: the pages between an authorization request and its answer."""

from __future__ import annotations

from app.api.openapi.oauth.endpoints import SHOWN
from app.api.openapi.oauth.parts import PAGE, UNSECURED, endpoint, form
from app.api.openapi.parts import REFUSALS, Schema, path_item, query_parameter, text

_FOUND: Schema = SHOWN | {
    "200": {"description": "The page that asks the person.", "content": PAGE},
    "404": {"description": REFUSALS["404"][1], "content": PAGE},
}
_REQUEST = query_parameter("request", text(maxLength=200), "The id of the stored request.")
_CHOICE = {"request": text(maxLength=200), "account": text(maxLength=64), "csrf_token": text()}
_DECISION = {
    "request": text(maxLength=200),
    "decision": text(enum=["allow", "deny"]),
    "scope": text(),
    "csrf_token": text(),
}

SCHEMAS: Schema = {}
PATHS: Schema = {
    "/organizations/{id}/oauth/authorize/resume": path_item(
        ("OrganizationId",),
        get=endpoint("resumeAuthorization", "Back from sign-in", answers=_FOUND, security=UNSECURED)
        | {"parameters": [_REQUEST]},
    ),
    "/organizations/{id}/oauth/authorize/account": path_item(
        ("OrganizationId",),
        get=endpoint("showAccounts", "Which account to go on with", answers=_FOUND, security=UNSECURED)
        | {"parameters": [_REQUEST]},
        post=endpoint(
            "chooseAccount",
            "The account that the person chose",
            answers=_FOUND | {"403": {"description": "Sent from another site.", "content": PAGE}},
            security=UNSECURED,
            requestBody=form(_CHOICE),
        ),
    ),
    "/organizations/{id}/oauth/authorize/decision": path_item(
        ("OrganizationId",),
        post=endpoint(
            "decideAuthorization",
            "What the person decided",
            answers=_FOUND | {"403": {"description": "Sent from another site.", "content": PAGE}},
            security=UNSECURED,
            requestBody=form(_DECISION),
        ),
    ),
}
