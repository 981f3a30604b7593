"""The token inspector. Tokens are only accepted in the body of a POST and are never stored or logged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from flask import request
from wtforms import TextAreaField

from app.operations.clients.resources import list_selectable_resources
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.tokens import inspection
from app.operations.tokens.access_tokens import management_audience
from app.operations.tokens.inspection import Inspection, inspect_token
from app.operations.tokens.revocation import revoke_token
from app.portal.context import PageResponse, PortalContext, portal_page
from app.rules.errors import InvalidInput
from app.web.forms import PageForm

_KINDS = {
    inspection.ACCESS: "Access token",
    inspection.REFRESH: "Refresh token",
    inspection.ID_TOKEN: "ID token",
    inspection.OTHER_JWT: "JWT",
}
# The badge of each state, its kind, and a sentence.
_STATES = {
    inspection.VALID: ("Valid", "ok", None),
    inspection.REVOKED: ("Revoked", "danger", "It was revoked, or the grant that it belongs to."),
    inspection.EXPIRED: ("Expired", "warn", "It has expired. Refresh it, or request a new one."),
    inspection.ENDED: (
        "Not accepted",
        "danger",
        "Its client, secret, user or API access is no longer active, or it was revoked in bulk.",
    ),
    inspection.REPLACED: (
        "Replaced",
        "warn",
        "A newer refresh token replaced it. If a client used it again, the whole grant would be revoked.",
    ),
    inspection.UNKNOWN: (
        "Unknown",
        "warn",
        "No client that you may see has this token. It may also have been deleted after it expired.",
    ),
    inspection.FOREIGN: (
        "Another issuer",
        "warn",
        "This organization did not issue it. It was only decoded: nothing in it is verified.",
    ),
}
_ADVICE = {
    "a client secret": "Anyone who reads it can act as the client. If it was in a log or a message, rotate it.",
    "an authorization code": "A code works once, within seconds. Your client exchanges it at the token endpoint.",
}
_MEANINGS = {
    "iss": "Issuer",
    "sub": "Subject",
    "aud": "Audience: who it is for",
    "exp": "Expires",
    "iat": "Issued",
    "nbf": "Not valid before",
    "auth_time": "Time of the sign-in",
    "jti": "ID of the token",
    "client_id": "Client that it was issued to",
    "azp": "Client that it was issued to",
    "scope": "Allowed scopes",
    "nonce": "Nonce of the authorization request",
    "at_hash": "Hash of the access token",
    "sid": "Session",
    "acr": "Strength of the sign-in",
    "amr": "Methods of the sign-in",
    "act": "Who acts for the subject",
    "cnf": "Key that it is bound to",
    "organization_id": "Organization",
    "email": "Email address",
    "email_verified": "Whether the email address is verified",
    "name": "Name",
    "roles": "Roles in the app",
    "groups": "Groups",
    "status": "Place in a status list",
    "alg": "Signature algorithm",
    "kid": "Key",
    "typ": "Type",
}
_TIMES = frozenset({"exp", "iat", "nbf", "auth_time", "updated_at"})


class InspectForm(PageForm):
    """A token to look at."""

    token = TextAreaField(
        "Token",
        description="An access token, a refresh token or an ID token. It is not stored or logged.",
        render_kw={"rows": "4", "spellcheck": "false", "autocomplete": "off", "required": True},
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
        return {"mistake": name, "advice": _ADVICE.get(name, "It was not looked up.")}
    label, kind, sentence = _STATES.get(found.state or "", ("Not checked", "", None))
    claims = found.claims or {}
    listed = claims.get("aud", [])
    audience = found.audience or tuple([listed] if isinstance(listed, str) else listed)
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
    try:
        return datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _audience_name(
    context: PortalContext, organization: OrganizationSnapshot, identifier: str, found: Inspection
) -> str:
    if found.state == inspection.FOREIGN:
        return ""
    if identifier == organization.issuer:
        return "UserInfo of this organization"
    if identifier == management_audience():
        return "Management API"
    if found.client is not None and identifier == (
        found.client.metadata_document_uri or found.client.client_id
    ):
        return found.client.name
    apis = list_selectable_resources(context.actor)
    return next((api.name for api in apis if api.identifier == identifier), "No API that you can see")
