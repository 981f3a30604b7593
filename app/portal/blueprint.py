"""The blueprint of the portal, and how its pages say no."""

from __future__ import annotations

from flask import Blueprint, Response, make_response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.portal.visit import home_slug, sign_in_url
from app.rules.errors import DomainError, Forbidden, NotFound, TooManyRequests, Unavailable
from app.web.branding import branding_of_path
from app.web.browser_session import actor_for
from app.web.request_log import request_id

portal = Blueprint("portal", __name__)

_TITLES: tuple[tuple[type[DomainError], str], ...] = (
    (NotFound, "This page does not exist"),
    (Forbidden, "You may not do this"),
    (TooManyRequests, "Too many tries"),
    (Unavailable, "Please try again in a moment"),
)
_HINTS: tuple[tuple[type[DomainError], str], ...] = (
    (NotFound, "It may have been deleted, or it belongs to another organization."),
    (Forbidden, "Ask an administrator of the organization for the right to do it."),
)


@portal.errorhandler(DomainError)
def refuse(error: DomainError) -> BaseResponse:
    """The refusal as a page; who must sign in again is sent there and comes back."""
    slug = (request.view_args or {}).get("organization")
    if isinstance(error, FreshSignInRequired) and slug:
        home = home_slug(actor_for(get_organization_by_slug(slug)))
        return redirect(sign_in_url(home or slug, again=True), 303)
    back_url, back_label = _way_back(error, slug)
    page = render_template(
        "error.html",
        title=_words(_TITLES, error) or "That did not work",
        message=error.description,
        hint=_words(_HINTS, error),
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


def _words(table: tuple[tuple[type[DomainError], str], ...], error: DomainError) -> str | None:
    return next((words for kind, words in table if isinstance(error, kind)), None)


def _way_back(error: DomainError, slug: str | None) -> tuple[str, str]:
    if slug is None or isinstance(error, NotFound):
        return "/portal", "Choose an organization"
    if request.path == f"/portal/{slug}":
        # A member may not see the overview: leading back to it would go in circles.
        return f"/organizations/{slug}/account", "Go to my account"
    return f"/portal/{slug}", "Back to the overview"
