"""The profile: who one is here, and what apps that may see it are told."""

from __future__ import annotations

from typing import Any

from flask import redirect, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.directory.users import get_user
from app.operations.users.deletion import can_delete_account
from app.operations.users.own_profile import can_change_profile, change_profile
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.rules.users.profile import ADDRESS_PARTS, CHECKS
from app.web import forms


@account.get("/organizations/<organization>/account")
@own_account
def account_page(visit: Visit) -> Response:
    """The account begins with the profile."""
    return redirect(visit.url("/profile"), 303)


@account.route("/organizations/<organization>/account/profile", methods=["GET", "POST"])
@own_account
def profile_page(visit: Visit) -> Response:
    """Name and standard claims, which one may change where the organization allows it."""
    if request.method == "GET":
        return _page(visit)
    try:
        change_profile(visit.actor, name=forms.text("name"), profile=_typed())
    except (InvalidInput, Conflict) as error:
        return _page(visit, typed={"name": forms.text("name"), **_typed()}, error=error)
    return visit.done("/profile", "saved")


def _typed() -> dict[str, Any]:
    address = {part: forms.text(f"address.{part}") for part in ADDRESS_PARTS}
    return {**{name: forms.text(name) for name in CHECKS}, "address": address}


def _page(visit: Visit, *, typed: dict[str, Any] | None = None, error: DomainError | None = None) -> Response:
    if visit.actor.user_id is None:
        raise RuntimeError("an account page without a person")
    user = get_user(visit.organization.id, visit.actor.user_id)
    return visit.render(
        "account/profile.html",
        user=user,
        values=typed or {"name": user.name, **user.profile},
        may_edit=can_change_profile(visit.actor),
        may_delete=can_delete_account(visit.actor),
        errors=forms.field_errors(error) if error else {},
        code=error.status if error else 200,
    )
