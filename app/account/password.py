"""Changing one's password."""

from __future__ import annotations

from flask import request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.directory.users import get_user
from app.operations.sign_in.passwords import change_password
from app.rules.errors import DomainError, InvalidInput, TooManyRequests
from app.web import forms
from app.web.browser_session import known_browser, set_sign_in


@account.route("/organizations/<organization>/account/password", methods=["GET", "POST"])
@own_account
def password_page(visit: Visit) -> Response:
    """The current and a new password; other browsers and apps are signed out by the change."""
    if request.method == "GET":
        return _page(visit)
    current, new = request.form.get("current_password", ""), request.form.get("new_password", "")
    try:
        changed = change_password(
            visit.actor, current, new, known_cookie=known_browser(visit.organization.id)
        )
    except (InvalidInput, TooManyRequests) as error:
        return _page(visit, error)
    response = visit.done("/password", "password")
    if changed.token is not None:
        set_sign_in(response, visit.organization.id, changed.token)
    return response


def _page(visit: Visit, error: DomainError | None = None) -> Response:
    if visit.actor.user_id is None:
        raise RuntimeError("an account page without a person")
    return visit.render(
        "account/password.html",
        user=get_user(visit.organization.id, visit.actor.user_id),
        min_length=visit.organization.settings["authentication"]["password"]["min_length"],
        errors=forms.field_errors(error) if error else {},
        code=error.status if error else 200,
    )
