"""The blueprint of the account pages, and how they say no."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import Blueprint, Response, make_response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.people.freshness import FreshSignInRequired
from app.rules.errors import DomainError, NotFound
from app.rules.languages.sentences import sentence
from app.web.branding import branding_of_path
from app.web.request_log import request_id

account = Blueprint("account", __name__)


@account.errorhandler(DomainError)
def refuse(error: DomainError) -> BaseResponse:
    """The refusal as a page; who must sign in again is sent there and comes back."""
    slug = (request.view_args or {}).get("organization")
    if isinstance(error, FreshSignInRequired) and slug:
        query = urlencode({"next": request.path, "reauthenticate": "1"})
        return redirect(f"/organizations/{slug}/login?{query}", 303)
    is_lost = isinstance(error, NotFound) or not slug or not request.path.endswith("/account")
    page = render_template(
        "error.html",
        title=sentence("This page does not exist") if isinstance(error, NotFound) else sentence("That did not work"),
        message=error.description,
        hint=None,
        error_code=error.code,
        request_id=request_id(),
        **(branding_of_path() if error.status < 500 else {}),
        back_url="/login" if is_lost else f"/organizations/{slug}/account",
        back_label=sentence("Choose an organization") if is_lost else sentence("Back to my account"),
    )
    response: Response = make_response(page, error.status)
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response
