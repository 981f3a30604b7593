"""Clients: the list, and the way in which a new one is registered."""

from __future__ import annotations

from typing import Any

from flask import request

from app.operations.consents.client_requests import count_open_requests
from app.operations.registration.clients import list_clients, register_client
from app.operations.registration.scopes import list_scopes
from app.portal.blueprint import portal
from app.portal.client_form import scope_choices
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.portal.words import REGISTRABLE, SOURCE_WORDS, TYPES
from app.rules.errors import Conflict, InvalidInput
from app.rules.registration.client_types import CLIENT_TYPES
from app.web.forms import field_errors, lines, text, ticked


@portal.get("/portal/<organization>/clients")
@visiting
def clients(visit: Visit) -> Answer:
    """The clients that the visitor may see, by name; ``q`` searches, ``type`` narrows."""
    query = request.args.get("q", "").strip()[:100]
    wanted = request.args.get("type", "")
    source = request.args.get("source", "")
    filters = {"type": wanted} if wanted in TYPES else {}
    if source in SOURCE_WORDS:
        filters["source"] = source
    page = list_clients(
        visit.actor,
        after=position(visit.organization.id, "portal clients"),
        query=query or None,
        filters=filters,
    )
    return visit.render(
        "portal/clients/list.html",
        page=page,
        query=query,
        type=wanted,
        types=TYPES,
        source=source,
        sources=SOURCE_WORDS,
        waiting=count_open_requests(visit.actor),
        registers_by_token=visit.organization.settings["oauth"]["dynamic_registration"]["mode"]
        == "initial_access_token",
        is_filtered=bool(query or filters),
        pager=pages_of(page, visit.organization.id, "portal clients"),
    )


@portal.get("/portal/<organization>/clients/new")
@visiting
def new_client(visit: Visit) -> Answer:
    """First which type it is, then, with ``?type=``, its name, redirect URIs and scopes."""
    visit.actor.require_some("clients:write")
    kind = request.args.get("type", "")
    if kind not in REGISTRABLE:
        return visit.render(
            "portal/clients/choose_type.html", types={name: TYPES[name] for name in REGISTRABLE}
        )
    defaults = {"name": "", "redirect_uris": [], "scopes": CLIENT_TYPES[kind].scopes, "more_scopes": []}
    return _form(visit, kind, defaults, {})


@portal.post("/portal/<organization>/clients/new")
@visiting
def register(visit: Visit) -> Answer:
    """The client stands; its first secret is on the page that answers, and in no address."""
    kind = text("type")
    values = {
        "name": text("name"),
        "redirect_uris": lines("redirect_uris"),
        "scopes": ticked("scopes"),
        "more_scopes": lines("more_scopes"),
    }
    fields: dict[str, Any] = {
        "name": values["name"],
        "type": kind,
        "scopes": list(dict.fromkeys([*values["scopes"], *values["more_scopes"]])),
    }
    if "authorization_code" in CLIENT_TYPES.get(kind, CLIENT_TYPES["web"]).grant_types:
        fields["redirect_uris"] = values["redirect_uris"]
    try:
        registered = register_client(visit.actor, fields)
    except (InvalidInput, Conflict) as refusal:
        if kind not in REGISTRABLE:
            raise
        return _form(visit, kind, values, field_errors(refusal))
    return visit.render(
        "portal/clients/registered.html",
        client=registered.client,
        credential=registered.credential,
        secret=registered.secret,
        warnings=registered.warnings,
        words=TYPES[kind],
    )


def _form(visit: Visit, kind: str, values: dict[str, Any], errors: dict[str, str]) -> Answer:
    return visit.render(
        "portal/clients/new.html",
        code=400 if errors else 200,
        type=kind,
        words=TYPES[kind],
        values=values,
        errors=errors,
        needs_redirects="authorization_code" in CLIENT_TYPES[kind].grant_types,
        **scope_choices(visit.actor, list_scopes(visit.actor), for_people=kind != "machine"),
    )
