"""Clients: the list, and the way in which a new one is registered."""

from __future__ import annotations

from typing import Any

from flask import redirect, request

from app.operations.authorization.approval_requests import count_open_requests
from app.operations.clients.clients import list_clients, register_client
from app.operations.clients.resources import list_selectable_resources
from app.operations.clients.scopes import list_scopes
from app.portal.blueprint import portal
from app.portal.client_form import scope_choices
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.portal.words import AGENT_WORDS, API_WORDS, REGISTRABLE, SOURCE_WORDS, TYPES
from app.rules.clients.client_types import CLIENT_TYPES
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import field_errors, is_ticked, lines, text, ticked


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
    """First what is being built, then, with ``?type=``, its name, redirect URIs and scopes.

    Who builds an API goes on to define it; an agent is a native app that names the APIs it calls.
    """
    visit.actor.require_for_own("clients:write")
    chosen = request.args.get("type", "")
    if chosen == "api":
        return redirect(f"/portal/{visit.organization.slug}/apis/new", 303)
    kind = "native" if chosen == "agent" else chosen
    if kind not in REGISTRABLE:
        cards = {name: TYPES[name] for name in REGISTRABLE}
        return visit.render(
            "portal/clients/choose_type.html", types=cards | {"api": API_WORDS, "agent": AGENT_WORDS}
        )
    is_agent = chosen == "agent"
    defaults: dict[str, Any] = {
        "name": "",
        "redirect_uris": ["http://127.0.0.1/callback"] if is_agent else [],
        "scopes": CLIENT_TYPES[kind].scopes,
        "more_scopes": [],
        "resources": [],
    }
    return _form(visit, kind, defaults, {}, is_agent=is_agent)


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
        "resources": ticked("resources"),
    }
    is_agent = kind == "native" and is_ticked("is_agent")
    fields: dict[str, Any] = {
        "name": values["name"],
        "type": kind,
        "scopes": list(dict.fromkeys([*values["scopes"], *values["more_scopes"]])),
    }
    if "authorization_code" in CLIENT_TYPES.get(kind, CLIENT_TYPES["web"]).grant_types:
        fields["redirect_uris"] = values["redirect_uris"]
    if is_agent:
        fields["resources"] = values["resources"]
    try:
        registered = register_client(visit.actor, fields)
    except (InvalidInput, Conflict) as refusal:
        if kind not in REGISTRABLE:
            raise
        return _form(visit, kind, values, field_errors(refusal), is_agent=is_agent)
    return visit.render(
        "portal/clients/registered.html",
        client=registered.client,
        credential=registered.credential,
        secret=registered.secret,
        warnings=registered.warnings,
        words=TYPES[kind],
    )


def _form(
    visit: Visit, kind: str, values: dict[str, Any], errors: dict[str, str], *, is_agent: bool = False
) -> Answer:
    apis = (
        [(api.identifier, api.name, api.identifier) for api in list_selectable_resources(visit.actor)]
        if is_agent
        else []
    )
    return visit.render(
        "portal/clients/new.html",
        code=400 if errors else 200,
        type=kind,
        words=AGENT_WORDS if is_agent else TYPES[kind],
        is_agent=is_agent,
        apis=apis,
        values=values,
        errors=errors,
        needs_redirects="authorization_code" in CLIENT_TYPES[kind].grant_types,
        **scope_choices(visit.actor, list_scopes(visit.actor), for_people=kind != "machine"),
    )
