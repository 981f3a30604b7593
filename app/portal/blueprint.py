"""The blueprint of the portal and its error pages."""

from __future__ import annotations

from flask import Blueprint, Response, make_response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.portal.context import home_slug, sign_in_url
from app.rules.errors import DomainError, Forbidden, NotFound, TooManyRequests, Unavailable
from app.web.branding import branding_of_path
from app.web.browser_session import actor_for
from app.web.request_log import request_id

portal = Blueprint("portal", __name__)

# Kind of error, title of the page, what to do.
_ERRORS: tuple[tuple[type[DomainError], str, str | None], ...] = (
    (NotFound, "Page not found", "It may have been deleted, or it belongs to another organization."),
    (Forbidden, "You don’t have access", "Ask an administrator of the organization for access."),
    (TooManyRequests, "Too many attempts", None),
    (Unavailable, "Please try again in a moment", None),
)


@portal.errorhandler(DomainError)
def show_error(error: DomainError) -> BaseResponse:
    """Show an error as a page, or ask for a fresh sign-in that leads back here."""
    slug = (request.view_args or {}).get("organization")
    if isinstance(error, FreshSignInRequired) and slug:
        home = home_slug(actor_for(get_organization_by_slug(slug)))
        return redirect(sign_in_url(home or slug, again=True), 303)
    back_url, back_label = _way_back(error, slug)
    title, hint = next(
        ((title, hint) for kind, title, hint in _ERRORS if isinstance(error, kind)),
        ("Something went wrong", None),
    )
    page = render_template(
        "error.html",
        title=title,
        message=error.description,
        hint=hint,
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
    if slug is None or isinstance(error, NotFound):
        return "/portal", "Choose an organization"
    if request.path == f"/portal/{slug}":
        # A member cannot see the overview, so a link to it would lead in circles.
        return f"/organizations/{slug}/account", "Go to my account"
    return f"/portal/{slug}", "Back to the overview"
