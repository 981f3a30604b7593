"""OpenAPI: the end session endpoint (OpenID Connect RP-Initiated Logout 1.0)."""

from __future__ import annotations

from app.api.openapi.oauth.parts import PAGE, UNSECURED, Place, endpoint, everywhere, form
from app.api.openapi.parts import REFUSALS, Schema, path_item, query_parameter, text

SCHEMAS: Schema = {}
# Whoever wants to leave is not refused for what stands beside it: nothing here has a bound that would be an error.
_REQUEST = {
    "id_token_hint": text("An ID token of the sign-in, which may have expired: it ends without a question."),
    "logout_hint": text("Accepted; the browser knows who is signed in."),
    "client_id": text("The client that asks."),
    "post_logout_redirect_uri": text("Registered, exactly; followed with an id_token_hint alone."),
    "state": text("Comes back at post_logout_redirect_uri."),
    "ui_locales": text("The languages that the person reads, best first."),
}
_SHOWN: Schema = {
    "200": {"description": "The question whether to sign out.", "content": PAGE},
    "303": {"description": "Signed out: to the client, or to the page that says so."},
    "400": {"description": "A page that names the problem.", "content": PAGE},
}
_NO_ORGANIZATION: Schema = {"404": {"description": REFUSALS["404"][1], "content": PAGE}}


def _at(place: Place) -> Schema:
    shown = _SHOWN | (_NO_ORGANIZATION if place.missing else {})
    parameters = [query_parameter(key, schema, schema["description"]) for key, schema in _REQUEST.items()]
    return {
        f"{place.prefix}/oauth/logout": path_item(
            place.parameters,
            get=endpoint(place.called("endSession"), "Sign the user out", answers=shown, security=UNSECURED)
            | {"parameters": parameters},
            post=endpoint(
                place.called("endSessionByForm"),
                "Sign the user out, by form",
                answers=shown,
                security=UNSECURED,
                requestBody=form(_REQUEST),
            ),
        )
    }


_CONFIRMATION: Schema = {
    "/organizations/{id}/oauth/logout/confirm": path_item(
        ("OrganizationId",),
        post=endpoint(
            "confirmLogout",
            "The person said yes",
            answers={
                **{status: answer for status, answer in _SHOWN.items() if status != "200"},
                **_NO_ORGANIZATION,
                "403": {"description": "Sent from another site.", "content": PAGE},
                **{
                    code: {"description": REFUSALS[code][1], "content": PAGE}
                    for code in ("413", "500", "503")
                },
                "413": {"description": REFUSALS["413"][1], "content": PAGE},
            },
            security=UNSECURED,
            requestBody=form(_REQUEST | {"csrf_token": text()}),
        ),
    )
}

PATHS: Schema = everywhere(_at) | _CONFIRMATION
