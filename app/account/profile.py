"""The profile: who one is here."""

from __future__ import annotations

from flask import redirect, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.people.users import get_user, rename_user
from app.rules.errors import DomainError, InvalidInput
from app.web import forms


@account.get("/organizations/<organization>/account")
@own_account
def account_page(visit: Visit) -> Response:
    """The account begins with the profile."""
    return redirect(visit.url("/profile"), 303)


@account.route("/organizations/<organization>/account/profile", methods=["GET", "POST"])
@own_account
def profile_page(visit: Visit) -> Response:
    """The name, which one may change where the organization allows it, and what else is known."""
    if request.method == "GET":
        return _page(visit)
    try:
        rename_user(visit.actor, forms.text("name"))
    except InvalidInput as error:
        return _page(visit, name=forms.text("name"), error=error)
    return visit.done("/profile", "saved")


def _page(visit: Visit, *, name: str | None = None, error: DomainError | None = None) -> Response:
    if visit.actor.user_id is None:
        raise RuntimeError("an account page without a person")
    user = get_user(visit.organization.id, visit.actor.user_id)
    allowed = visit.organization.settings["user_permissions"]["members_can_edit_profile"]
    return visit.render(
        "account/profile.html",
        user=user,
        name=user.name if name is None else name,
        may_edit=allowed or visit.actor.may("users:write"),
        errors=forms.field_errors(error) if error else {},
        code=error.status if error else 200,
    )
