"""A client's pages: redirects, access, details, advanced, and its end. Its secrets are in ``credentials``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import redirect, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.clients.clients import ClientRecord, delete_client, get_client, update_client
from app.operations.clients.previews import preview_deletion
from app.operations.clients.scopes import list_scopes
from app.portal import client_form
from app.portal.blueprint import portal
from app.portal.visit import Answer, Visit, visiting
from app.portal.words import (
    APPROVAL,
    AUTH_METHODS,
    EXCHANGE,
    GRANTS,
    SECURITY_PROFILE_WORDS,
    SOURCE_WORDS,
    TRUST,
    TYPES,
)
from app.rules.clients.client_fields import SECURITY_PROFILES, SIGNING_ALGORITHMS, TOKEN_FORMATS
from app.rules.clients.client_types import CLIENT_TYPES
from app.rules.errors import Conflict, Forbidden, InvalidInput, PreconditionFailed
from app.web.forms import field_errors, text, version_read

_TABS = (
    ("credentials", "Credentials"),
    ("redirects", "Redirects"),
    ("access", "Access"),
    ("details", "Details"),
    ("tokens", "Tokens"),
    ("logs", "Logs"),
    ("advanced", "Advanced"),
)


def client_page(
    visit: Visit,
    client: ClientRecord,
    tab: str,
    *,
    code: int = 200,
    template: str | None = None,
    **context: Any,
) -> BaseResponse:
    """One tab of the client's page, or with ``template`` a page behind that tab."""
    here = visit.url(f"/clients/{client.client_id}")
    tabs = [
        {"label": label, "url": f"{here}/{name}", "current": name == tab}
        for name, label in _TABS
        if _has(visit, client, name)
    ]
    return visit.render(
        f"portal/clients/{template or tab}.html",
        code=code,
        client=client,
        client_url=here,
        words=TYPES[client.type],
        trust_words=TRUST,
        source_words=SOURCE_WORDS,
        approval_words=APPROVAL,
        tabs=tabs,
        may_change=visit.actor.has_permission("clients:write", owner_id=client.created_by_user_id),
        **context,
    )


def _has(visit: Visit, client: ClientRecord, tab: str) -> bool:
    if tab == "logs":
        return visit.actor.has_permission("logs:read", owner_id=client.created_by_user_id)
    if tab == "tokens":
        return visit.actor.has_permission("tokens:read", owner_id=client.created_by_user_id)
    return tab != "redirects" or "authorization_code" in client.grant_types


@portal.get("/portal/<organization>/clients/<client_id>")
@visiting
def client(visit: Visit, client_id: str) -> Answer:
    """The first tab."""
    found = get_client(visit.actor, client_id)
    return redirect(visit.url(f"/clients/{found.client_id}/credentials"), 303)


@portal.route("/portal/<organization>/clients/<client_id>/redirects", methods=["GET", "POST"])
@visiting
def client_redirects(visit: Visit, client_id: str) -> Answer:
    """Where the client may send people back to."""
    return _edit(visit, client_id, "redirects", client_form.redirects_sent)


@portal.route("/portal/<organization>/clients/<client_id>/access", methods=["GET", "POST"])
@visiting
def client_access(visit: Visit, client_id: str) -> Answer:
    """What the client may ask for."""
    return _edit(
        visit,
        client_id,
        "access",
        client_form.access_sent,
        approval_choices=list(APPROVAL.items()),
        **client_form.scope_choices(visit.actor, list_scopes(visit.actor)),
    )


@portal.route("/portal/<organization>/clients/<client_id>/details", methods=["GET", "POST"])
@visiting
def client_details(visit: Visit, client_id: str) -> Answer:
    """What people read about the client, and whether it may act."""
    return _edit(visit, client_id, "details", client_form.details_sent)


@portal.route("/portal/<organization>/clients/<client_id>/advanced", methods=["GET", "POST"])
@visiting
def client_advanced(visit: Visit, client_id: str) -> Answer:
    """What its type has decided already, for those who know why they want it otherwise."""
    kind = CLIENT_TYPES[get_client(visit.actor, client_id).type]
    return _edit(
        visit,
        client_id,
        "advanced",
        client_form.advanced_sent,
        grant_choices=[(name, GRANTS[name], None) for name in kind.possible_grant_types],
        method_choices=[(name, AUTH_METHODS[name]) for name in kind.auth_methods],
        format_choices=[("", "As the organization decides"), *((name, name) for name in TOKEN_FORMATS)],
        algorithm_choices=[
            ("", "As the organization decides"),
            *((name, name) for name in SIGNING_ALGORITHMS),
        ],
        exchange_choices=[("", "None"), *EXCHANGE.items()]
        if visit.actor.has_permission("clients:trust")
        else [],
        profile_choices=[("", "None"), *((name, SECURITY_PROFILE_WORDS[name]) for name in SECURITY_PROFILES)],
    )


@portal.route("/portal/<organization>/clients/<client_id>/delete", methods=["GET", "POST"])
@visiting
def client_delete(visit: Visit, client_id: str) -> Answer:
    """What will stop working; afterwards the client is gone. Asks for a fresh sign-in."""
    ending = preview_deletion(visit.actor, client_id)
    found = ending.client
    errors: dict[str, str] = {}
    if request.method == "POST":
        if text("name") == found.name:
            delete_client(visit.actor, client_id)
            return visit.done("/clients", "client-deleted")
        errors["name"] = "This is not the client's name. Type it as it stands above."
    return visit.render(
        "portal/clients/delete.html",
        code=400 if errors else 200,
        client=found,
        client_url=visit.url(f"/clients/{found.client_id}"),
        secrets=ending.secrets,
        errors=errors,
    )


def _edit(
    visit: Visit, client_id: str, tab: str, sent: Callable[[], dict[str, Any]], **context: Any
) -> Answer:
    """The tab's form, or, posted, the change: refused words land at their field and what was typed stays."""
    found = get_client(visit.actor, client_id)
    values: dict[str, Any] = {name: getattr(found, name) for name in _NAMES[tab]}
    if request.method == "GET":
        return client_page(visit, found, tab, values=values, errors={}, **context)
    fields = sent()
    try:
        updated = update_client(visit.actor, client_id, fields, expected_version=version_read())
    except PreconditionFailed:
        errors = {
            "": "Somebody changed this client since you opened the page. Check the values and save again."
        }
        return client_page(visit, found, tab, code=412, values={**values, **fields}, errors=errors, **context)
    except (InvalidInput, Conflict) as refusal:
        errors = field_errors(refusal)
        return client_page(visit, found, tab, code=400, values={**values, **fields}, errors=errors, **context)
    except Forbidden as refusal:
        if not refusal.errors:
            raise
        # Somebody may look and change, only not this: what was typed stays, with the reason at its field.
        errors = field_errors(refusal)
        return client_page(visit, found, tab, code=403, values={**values, **fields}, errors=errors, **context)
    return visit.done(f"/clients/{client_id}/{tab}", "saved" if updated.changed else "unchanged")


_NAMES = {
    "redirects": ("redirect_uris", "post_logout_redirect_uris", "backchannel_logout_uri"),
    "access": ("scopes", "optional_scopes", "approval", "approved_scopes"),
    "details": (
        "name", "description", "contacts", "status", "client_uri", "logo_uri", "policy_uri", "tos_uri", "trust",
    ),
    "advanced": (
        "grant_types", "token_endpoint_auth_method", "access_token_format", "id_token_signed_response_alg",
        "jwks", "jwks_uri", "security_profile", "dpop_bound_access_tokens", "require_pushed_authorization_requests",
        "token_exchange",
        "resources",
    ),
}  # fmt: skip
