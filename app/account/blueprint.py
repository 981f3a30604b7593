"""The blueprint of the account pages and its error pages."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import Blueprint, Response, make_response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.users.email_change import EmailVerificationEnded
from app.operations.users.password_resets import ResetEnded
from app.rules.errors import DomainError, NotFound
from app.rules.languages.sentences import lazy_gettext
from app.web.branding import branding_of_path
from app.web.request_log import request_id

account = Blueprint("account", __name__)


@account.errorhandler(DomainError)
def show_error(error: DomainError) -> BaseResponse:
    """Show an error as a page, or ask for a fresh sign-in that leads back here."""
    slug = (request.view_args or {}).get("organization")
    if isinstance(error, FreshSignInRequired) and slug:
        query = urlencode({"next": request.path, "reauthenticate": "1"})
        return redirect(f"/organizations/{slug}/login?{query}", 303)
    back_url, back_label = _way_back(error, slug)
    title = (
        lazy_gettext("Page not found")
        if isinstance(error, NotFound)
        else lazy_gettext("Something went wrong")
    )
    page = render_template(
        "error.html",
        title=title,
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


def _way_back(error: DomainError, slug: str | None) -> tuple[str, str]:
    """Return the URL and label of the error page's button; never the page that failed."""
    home = f"/organizations/{slug}"
    if slug and request.path.startswith(f"{home}/account/"):
        return f"{home}/account", lazy_gettext("Back to my account")
    if not slug or isinstance(error, NotFound) or request.path in {f"{home}/account", f"{home}/login"}:
        return "/login", lazy_gettext("Choose an organization")
    if isinstance(error, EmailVerificationEnded):
        return f"{home}/account/email", lazy_gettext("Request a new link")
    if isinstance(error, ResetEnded):
        return f"{home}/forgot", lazy_gettext("Request a new link")
    return f"{home}/login", lazy_gettext("Back to sign in")
