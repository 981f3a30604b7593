"""Initial access tokens: who may register clients by RFC 7591, for how long and how often."""

from __future__ import annotations

from typing import Any

from flask import request

from app.operations.clients.initial_access_tokens import (
    create_registration_token,
    get_registration_token,
    list_registration_tokens,
    revoke_registration_token,
)
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.clients.credentials import DEFAULT_LIFETIME
from app.rules.clients.credentials import MAX_INITIAL_ACCESS_LIFETIME as MAX_LIFETIME
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import field_errors, text

_LIST = "portal registration tokens"


@portal.route("/portal/<organization>/registration-tokens", methods=["GET", "POST"])
@visiting
def registration_tokens(visit: Visit) -> Answer:
    """The tokens and the form for another one; posted, its value is on the page that answers, and in no address."""
    if request.method == "GET":
        return _page(visit)
    values = {"name": text("name"), "days": text("days"), "max_uses": text("max_uses")}
    try:
        made = create_registration_token(visit.actor, _fields(values))
    except (InvalidInput, Conflict) as refusal:
        return _page(visit, values=values, errors=field_errors(refusal, {"expires_in_days": "days"}))
    return visit.render(
        "portal/registration_tokens/made.html", record=made.record, token=made.token, address=_address(visit)
    )


@portal.route("/portal/<organization>/registration-tokens/<token_id>/revoke", methods=["GET", "POST"])
@visiting
def revoke_initial_access(visit: Visit, token_id: str) -> Answer:
    """What will stop working; afterwards nobody registers by the token."""
    record = get_registration_token(visit.actor, token_id)
    visit.actor.require("clients:write")
    if request.method == "POST":
        revoke_registration_token(visit.actor, token_id)
        return visit.done("/registration-tokens", "registration-token-revoked")
    return visit.render("portal/registration_tokens/revoke.html", record=record)


def _fields(values: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": values["name"] or None}
    days, uses = values["days"], values["max_uses"]
    # What is no number stays what it is, so that the operation refuses it at its field.
    if days:
        fields["expires_in_days"] = int(days) if _is_number(days) else days
    if uses:
        fields["max_uses"] = int(uses) if _is_number(uses) else uses
    return fields


def _is_number(typed: str) -> bool:
    return typed.isascii() and typed.isdigit() and len(typed) < 6


def _page(
    visit: Visit, *, values: dict[str, str] | None = None, errors: dict[str, str] | None = None
) -> Answer:
    here = visit.organization.id
    page = list_registration_tokens(visit.actor, after=position(here, _LIST))
    return visit.render(
        "portal/registration_tokens/list.html",
        code=400 if errors else 200,
        page=page,
        mode=visit.organization.settings["oauth"]["dynamic_registration"]["mode"],
        values=values or {"name": "", "days": str(DEFAULT_LIFETIME.days), "max_uses": "1"},
        errors=errors or {},
        longest_days=MAX_LIFETIME.days,
        address=_address(visit),
        pager=pages_of(page, here, _LIST),
    )


def _address(visit: Visit) -> str:
    return f"{visit.organization.issuer}/oauth/register"
