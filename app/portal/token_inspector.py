"""The token inspector. Tokens are only accepted in the body of a POST and are never stored or logged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from flask import request
from wtforms import TextAreaField

from app.operations.clients.resources import list_selectable_resources
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.tokens import inspection
from app.operations.tokens.access_tokens import management_audience
from app.operations.tokens.inspection import Inspection, inspect_token
from app.operations.tokens.revocation import revoke_token
from app.portal.context import PageResponse, PortalContext, portal_page
from app.rules.errors import InvalidInput
from app.web.forms import PageForm
from app.web.languages import gettext, lazy_gettext, page_time_zone

_KINDS = {
    inspection.ACCESS: lazy_gettext("Access token"),
    inspection.REFRESH: lazy_gettext("Refresh token"),
    inspection.ID_TOKEN: lazy_gettext("ID token"),
    inspection.OTHER_JWT: "JWT",
}
# The badge of each state, its kind, and a sentence.
_STATES = {
    inspection.VALID: (lazy_gettext("Valid"), "ok", None),
    inspection.REVOKED: (
        lazy_gettext("Revoked"),
        "danger",
        lazy_gettext("It was revoked, or the grant that it belongs to."),
    ),
    inspection.EXPIRED: (
        lazy_gettext("Expired"),
        "warn",
        lazy_gettext("It has expired. Refresh it, or request a new one."),
    ),
    inspection.ENDED: (
        lazy_gettext("Not accepted"),
        "danger",
        lazy_gettext(
            "Its client, secret, user or API access is no longer active, or it was revoked in bulk."
        ),
    ),
    inspection.REPLACED: (
        lazy_gettext("Replaced"),
        "warn",
        lazy_gettext(
            "A newer refresh token replaced it. If a client used it again, the whole grant would be revoked."
        ),
    ),
    inspection.UNKNOWN: (
        lazy_gettext("Unknown"),
        "warn",
        lazy_gettext(
            "No client that you may see has this token. It may also have been deleted after it expired."
        ),
    ),
    inspection.FOREIGN: (
        lazy_gettext("Another issuer"),
        "warn",
        lazy_gettext("This organization did not issue it. It was only decoded: nothing in it is verified."),
    ),
}
_ADVICE = {
    "a client secret": lazy_gettext(
        "Anyone who reads it can act as the client. If it was in a log or a message, rotate it."
    ),
    "an authorization code": lazy_gettext(
        "A code works once, within seconds. Your client exchanges it at the token endpoint."
    ),
}
_MEANINGS = {
    "iss": lazy_gettext("Issuer"),
    "sub": lazy_gettext("Subject"),
    "aud": lazy_gettext("Audience: who it is for"),
    "exp": lazy_gettext("Expires"),
    "iat": lazy_gettext("Issued"),
    "nbf": lazy_gettext("Not valid before"),
    "auth_time": lazy_gettext("Time of the sign-in"),
    "jti": lazy_gettext("ID of the token"),
    "client_id": lazy_gettext("Client that it was issued to"),
    "azp": lazy_gettext("Client that it was issued to"),
    "scope": lazy_gettext("Allowed scopes"),
    "nonce": lazy_gettext("Nonce of the authorization request"),
    "at_hash": lazy_gettext("Hash of the access token"),
    "sid": lazy_gettext("Session"),
    "acr": lazy_gettext("Strength of the sign-in"),
    "amr": lazy_gettext("Methods of the sign-in"),
    "act": lazy_gettext("Who acts for the subject"),
    "cnf": lazy_gettext("Key that it is bound to"),
    "organization_id": lazy_gettext("Organization"),
    "email": lazy_gettext("Email address"),
    "email_verified": lazy_gettext("Whether the email address is verified"),
    "name": lazy_gettext("Name"),
    "roles": lazy_gettext("Roles in the app"),
    "groups": lazy_gettext("Groups"),
    "status": lazy_gettext("Place in a status list"),
    "alg": lazy_gettext("Signature algorithm"),
    "kid": lazy_gettext("Key"),
    "typ": lazy_gettext("Type"),
}
_TIMES = frozenset({"exp", "iat", "nbf", "auth_time", "updated_at"})


class InspectForm(PageForm):
    """A token to look at."""

    token = TextAreaField(
        lazy_gettext("Token"),
        description=lazy_gettext(
            "An access token, a refresh token or an ID token. It is not stored or logged."
        ),
        render_kw={
            "rows": "4",
            "spellcheck": "false",
            "autocomplete": "off",
            "data-confidential": True,
            "required": True,
        },
    )


@portal_page("/inspect", "GET", "POST")
def token_inspector(context: PortalContext) -> PageResponse:
    """Show the pasted token decoded and checked, or with ``action=revoke`` revoke it."""
    context.actor.require_for_own("tokens:read")
    form, found = InspectForm(), None
    if form.validate_on_submit():
        token = form.token.data or ""
        with form.show_errors(InvalidInput):
            if request.form.get("action") == "revoke":
                # The operation checks whose token it is.
                revoked = revoke_token(context.actor, token.removeprefix("Bearer ").strip())
                return context.done("/inspect", "token-revoked" if revoked else "unchanged")
            found = inspect_token(context.actor, token)
    return context.render("portal/inspect.html", form=form, **(_words(context, found) if found else {}))


def _words(context: PortalContext, found: Inspection) -> dict[str, Any]:
    if found.kind == inspection.MISTAKE:
        name = found.name or ""
        return {"mistake": name, "advice": _ADVICE.get(name, gettext("It was not looked up."))}
    label, kind, sentence = _STATES.get(found.state or "", (gettext("Not checked"), "", None))
    claims = found.claims or {}
    # What others issued was only decoded, so that its audience may be anything.
    listed = claims.get("aud", [])
    audience = found.audience or tuple(listed if isinstance(listed, list) else [listed])
    return {
        "found": found,
        "title": f"{_KINDS[found.kind]} ({'JWT' if found.header is not None else 'opaque'})",
        "state": {"label": label, "kind": kind, "sentence": sentence},
        "audience": [
            (str(one), _audience_name(context, context.organization, str(one), found)) for one in audience
        ],
        "header": _rows(found.header or {}),
        "claims": _rows(claims),
    }


def _rows(values: Any) -> list[tuple[str, str, str, datetime | None]]:
    """Return name, value, meaning and, for a time, the time of each member."""
    rows = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        rows.append((name, text, _MEANINGS.get(name, ""), _time(value) if name in _TIMES else None))
    return rows


def _time(value: Any) -> datetime | None:
    """Return the time of a claim, or None if it is none, or out of range in the time zone of the page."""
    try:
        time = datetime.fromtimestamp(value, UTC)
        time.astimezone(page_time_zone())
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return time


def _audience_name(
    context: PortalContext, organization: OrganizationSnapshot, identifier: str, found: Inspection
) -> str:
    if found.state == inspection.FOREIGN:
        return ""
    if identifier == organization.issuer:
        return gettext("UserInfo of this organization")
    if identifier == management_audience():
        return gettext("Management API")
    if found.client is not None and identifier == (
        found.client.metadata_document_uri or found.client.client_id
    ):
        return found.client.name
    apis = list_selectable_resources(context.actor)
    return next(
        (api.name for api in apis if api.identifier == identifier), gettext("No API that you can see")
    )
