"""Deleting one's own account, where the organization lets its members."""

from __future__ import annotations

from flask import make_response, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.users.deletion import delete_own_account, preview_account_deletion
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.web import forms
from app.web.branding import branding_of
from app.web.browser_session import clear_sign_in


@account.route("/organizations/<organization>/account/delete", methods=["GET", "POST"])
@own_account
def delete_page(visit: Visit) -> Response:
    """What will stop working; afterwards the account is gone. Asks for a fresh sign-in."""
    if request.method == "GET":
        return _page(visit)
    try:
        delete_own_account(visit.actor, email=forms.text("email"))
    except (InvalidInput, Conflict) as error:
        return _page(visit, error)
    page = make_response(
        render_template(
            "account/deleted.html", organization=visit.organization, **branding_of(visit.organization)
        )
    )
    clear_sign_in(page, visit.organization.id)
    return page


def _page(visit: Visit, error: DomainError | None = None) -> Response:
    return visit.render(
        "account/delete.html",
        end=preview_account_deletion(visit.actor),
        errors=forms.field_errors(error) if error else {},
        code=error.status if error else 200,
    )
