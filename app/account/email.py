"""The own e-mail address: which one it is, whether it is confirmed, and another one."""

from __future__ import annotations

from flask import request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.directory.users import get_user
from app.operations.users.email_change import can_verify_emails, request_email_verification
from app.operations.users.own_profile import can_change_profile
from app.rules.errors import Conflict, DomainError, InvalidInput, TooManyRequests
from app.web import forms


@account.route("/organizations/<organization>/account/email", methods=["GET", "POST"])
@own_account
def email_page(visit: Visit) -> Response:
    """Posted, a link goes to the address, whether or not somebody has it; asks for a fresh sign-in."""
    if request.method == "GET":
        return _page(visit)
    try:
        request_email_verification(visit.actor, forms.text("email"))
    except (InvalidInput, TooManyRequests, Conflict) as error:
        return _page(visit, typed=forms.text("email"), error=error)
    return visit.done("/email", "proof")


def _page(visit: Visit, *, typed: str = "", error: DomainError | None = None) -> Response:
    if visit.actor.user_id is None:
        raise RuntimeError("an account page without a person")
    response = visit.render(
        "account/email.html",
        user=get_user(visit.organization.id, visit.actor.user_id),
        typed=typed,
        is_possible=can_verify_emails(),
        may_change=can_change_profile(visit.actor),
        errors=forms.field_errors(error) if error else {},
        code=error.status if error else 200,
    )
    if isinstance(error, TooManyRequests):
        response.headers["Retry-After"] = str(error.retry_after)
    return response
