"""The blueprint of the account pages, and how they say no."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import Blueprint, Response, make_response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.users.email_change import EmailVerificationEnded
from app.operations.users.password_resets import ResetEnded
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
    back_url, back_label = _way_on(error, slug)
    page = render_template(
        "error.html",
        title=sentence("This page does not exist")
        if isinstance(error, NotFound)
        else sentence("That did not work"),
        message=error.description,
        hint=None,
        error_code=error.code,
        request_id=request_id(),
        **(branding_of_path() if error.status < 500 else {}),
        back_url=back_url,
        back_label=back_label,
    )
    response: Response = make_response(page, error.status)
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


def _way_on(error: DomainError, slug: str | None) -> tuple[str, str]:
    """Where a refusal leads, and what its button says: never back to the page that refused."""
    home = f"/organizations/{slug}"
    if slug and request.path.startswith(f"{home}/account/"):
        return f"{home}/account", sentence("Back to my account")
    if not slug or isinstance(error, NotFound) or request.path in {f"{home}/account", f"{home}/login"}:
        return "/login", sentence("Choose an organization")
    if isinstance(error, EmailVerificationEnded):
        return f"{home}/account/email", sentence("Ask for a new link")
    if isinstance(error, ResetEnded):
        return f"{home}/forgot", sentence("Ask for a new link")
    return f"{home}/login", sentence("Back to the sign-in page")
