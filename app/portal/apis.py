"""APIs: the organization's resources with their scopes, and what each says of itself to clients."""

from __future__ import annotations

import json
from typing import Any

from flask import request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.clients.resource_scopes import MAX_HOLDERS, ScopesInUse
from app.operations.clients.resources import (
    ResourceRecord,
    define_resource,
    delete_resource,
    get_resource,
    list_resource_holders,
    list_resources,
    update_resource,
)
from app.operations.tokens.introspection import metadata_for
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.clients.client_fields import TOKEN_FORMATS
from app.rules.errors import Conflict, InvalidInput, PreconditionFailed
from app.web.forms import field_errors, is_ticked, text, version_read

_EMPTY_ROWS = 3
_FORMATS = [("", "As the client or the organization chooses"), *((name, name) for name in TOKEN_FORMATS)]
_NEW: dict[str, Any] = {
    "identifier": "",
    "name": "",
    "description": "",
    "access_token_format": None,
    "access_token_ttl_seconds": None,
    "scopes": [],
    "status": "active",
}


@portal.get("/portal/<organization>/apis")
@visiting
def apis(visit: Visit) -> Answer:
    """The APIs that the visitor may see, by name; ``q`` searches."""
    query = request.args.get("q", "").strip()[:100]
    here = visit.organization.id
    page = list_resources(visit.actor, after=position(here, "portal apis"), query=query or None)
    return visit.render(
        "portal/apis/list.html", page=page, query=query, pager=pages_of(page, here, "portal apis")
    )


@portal.route("/portal/<organization>/apis/new", methods=["GET", "POST"])
@visiting
def new_api(visit: Visit) -> Answer:
    """An API of the organization; afterwards clients may ask for it."""
    visit.actor.require_for_own("resources:write")
    if request.method == "GET":
        return _form(visit, None, _NEW, {})
    sent = {"identifier": text("identifier"), **_sent()}
    del sent["status"]
    values = {**_NEW, **sent}
    if unread := _unread(sent):
        return _form(visit, None, values, unread)
    try:
        made = define_resource(visit.actor, sent)
    except (InvalidInput, Conflict) as refusal:
        return _form(visit, None, values, field_errors(refusal))
    return visit.done(f"/apis/{made.public_id}", "api-defined")


@portal.route("/portal/<organization>/apis/<api_id>", methods=["GET", "POST"])
@visiting
def api_page(visit: Visit, api_id: str) -> Answer:
    """One API: its form, what it should serve about itself, and the way to delete it."""
    found = get_resource(visit.actor, api_id)
    stored = {name: getattr(found, name) for name in _NEW} | {"scopes": _rows(found)}
    if request.method == "GET":
        return _form(visit, found, stored, {})
    sent = _sent()
    values = {**stored, **sent}
    if unread := _unread(sent):
        return _form(visit, found, values, unread)
    try:
        updated = update_resource(
            visit.actor, api_id, sent, expected_version=version_read(), confirmed=is_ticked("confirmed")
        )
    except PreconditionFailed:
        errors = {"": "Somebody changed this API since you opened the page. Check the values and save again."}
        return _form(visit, found, values, errors, code=412)
    except ScopesInUse as refusal:
        return _form(visit, found, values, {"scopes": refusal.description}, asks=True)
    except (InvalidInput, Conflict) as refusal:
        return _form(visit, found, values, field_errors(refusal))
    return visit.done(f"/apis/{api_id}", "saved" if updated.changed else "unchanged")


@portal.route("/portal/<organization>/apis/<api_id>/delete", methods=["GET", "POST"])
@visiting
def api_delete(visit: Visit, api_id: str) -> Answer:
    """What will stop working; afterwards the API and its scopes are gone."""
    found = get_resource(visit.actor, api_id)
    holders = list_resource_holders(visit.actor, api_id)
    errors: dict[str, str] = {}
    if request.method == "POST":
        if text("name") == found.name:
            delete_resource(visit.actor, api_id, confirmed=True)
            return visit.done("/apis", "api-deleted")
        errors["name"] = "This is not the API's name. Type it as it stands above."
    return visit.render(
        "portal/apis/delete.html",
        code=400 if errors else 200,
        api=found,
        api_url=visit.url(f"/apis/{found.public_id}"),
        holders=holders[:MAX_HOLDERS],
        errors=errors,
    )


def _form(
    visit: Visit,
    api: ResourceRecord | None,
    values: dict[str, Any],
    errors: dict[str, str],
    *,
    code: int | None = None,
    asks: bool = False,
) -> BaseResponse:
    owner = None if api is None else api.created_by_user_id
    metadata = None if api is None else metadata_for(visit.actor, api.public_id)
    empty = {"name": "", "title": "", "description": ""}
    return visit.render(
        "portal/apis/form.html",
        code=code or (400 if errors else 200),
        api=api,
        values=values,
        rows=[*values["scopes"], *[empty] * _EMPTY_ROWS],
        formats=_FORMATS,
        errors=errors,
        asks_to_confirm=asks,
        may_change=api is None or visit.actor.has_permission("resources:write", owner_id=owner),
        metadata=metadata,
        document=json.dumps(metadata.document, indent=2) if metadata is not None else None,
    )


def _sent() -> dict[str, Any]:
    """The fields of the form; a row without a name is a scope less."""
    columns = [request.form.getlist(f"scope_{name}") for name in ("name", "title", "description")]
    rows = [tuple(cell.strip() for cell in row) for row in zip(*columns, strict=False)]
    seconds = text("access_token_ttl_seconds")
    return {
        "name": text("name"),
        "description": text("description").replace("\r\n", "\n"),
        "access_token_format": text("access_token_format") or None,
        "access_token_ttl_seconds": int(seconds) if _is_number(seconds) else seconds or None,
        "scopes": [
            {"name": name, "title": title or None, "description": words or None}
            for name, title, words in rows
            if name
        ],
        "status": "active" if is_ticked("is_active") else "disabled",
    }


def _unread(sent: dict[str, Any]) -> dict[str, str]:
    """What was typed where a number belongs."""
    if isinstance(sent["access_token_ttl_seconds"], str):
        return {"access_token_ttl_seconds": "This must be a whole number of seconds."}
    return {}


def _is_number(typed: str) -> bool:
    return typed.isascii() and typed.isdigit() and len(typed) <= 6


def _rows(api: ResourceRecord) -> list[dict[str, str | None]]:
    return [
        {"name": scope.name, "title": scope.title, "description": scope.description} for scope in api.scopes
    ]
