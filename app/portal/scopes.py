"""Scopes of the organization, those of no API included, and the words that consent shows for them."""

from __future__ import annotations

from collections.abc import Mapping

from flask import request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.clients.scopes import ScopeRecord, can_edit_scope, get_scope, search_scopes, update_scope
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, InvalidInput, PreconditionFailed
from app.web.forms import field_errors, text, version_read

_LIST = "portal scopes"


@portal.get("/portal/<organization>/scopes")
@visiting
def scopes(visit: Visit) -> Answer:
    """Every scope by name, with what people read of it; ``q`` searches."""
    query = request.args.get("q", "").strip()[:100]
    here = visit.organization.id
    page = search_scopes(visit.actor, after=position(here, _LIST), query=query or None)
    return visit.render("portal/apis/scopes.html", page=page, query=query, pager=pages_of(page, here, _LIST))


@portal.route("/portal/<organization>/scopes/<path:scope_name>", methods=["GET", "POST"])
@visiting
def scope_page(visit: Visit, scope_name: str) -> Answer:
    """The words of one scope; those of an API's scope are on the page of the API."""
    found = get_scope(visit.actor, scope_name)
    if request.method == "GET":
        return _form(visit, found, {"title": found.title, "description": found.description}, {})
    typed = {name: text(name) for name in ("title", "description")}
    try:
        # What was left empty are no words: people see the bare name again.
        sent = {name: value or None for name, value in typed.items()}
        _, changed = update_scope(visit.actor, scope_name, sent, expected_version=version_read())
    except PreconditionFailed:
        errors = {"": "Somebody changed these words since you opened the page. Check them and save again."}
        return _form(visit, get_scope(visit.actor, scope_name), typed, errors, code=412)
    except (InvalidInput, Conflict) as refusal:
        return _form(visit, found, typed, field_errors(refusal))
    return visit.done("/scopes", "saved" if changed else "unchanged")


def _form(
    visit: Visit,
    scope: ScopeRecord,
    values: Mapping[str, str | None],
    errors: dict[str, str],
    *,
    code: int | None = None,
) -> BaseResponse:
    return visit.render(
        "portal/apis/scope.html",
        code=code or (400 if errors else 200),
        scope=scope,
        values=values,
        errors=errors,
        may_change=can_edit_scope(visit.actor, scope),
    )
