"""The context of a portal page: the organization in the URL, the signed-in actor, and the layout around the page."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from flask_login import current_user, login_required
from werkzeug.wrappers import Response as BaseResponse

from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.operations.store.pagination import CursorKey, Page
from app.portal.layout import navigation, notice
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.web.browser_session import session_for
from app.web.forms import PageForm
from app.web.pagination import page_meta, page_position

PageResponse = str | BaseResponse | tuple[str, int]
_NOT_FILTERS = frozenset({"done"})


@dataclass(frozen=True, slots=True)
class PortalContext:
    """One request of a signed-in user to the pages of one organization."""

    organization: OrganizationSnapshot
    actor: Actor

    def url(self, path: str = "") -> str:
        """Return the path of a page of this organization."""
        return f"/portal/{self.organization.slug}{path}"

    def render(
        self,
        template: str,
        *,
        form: PageForm | None = None,
        code: int | None = None,
        pager: dict[str, str | None] | None = None,
        **variables: Any,
    ) -> BaseResponse:
        """Render a page within the layout; the status is 400 for a form with errors, unless ``code`` is given."""
        page = render_template(
            template,
            **layout_variables(self.organization, self.actor),
            base=self.url(),
            may=self.actor.has_permission,
            form=form,
            **(pager or {}),
            **variables,
        )
        return make_response(page, code or (400 if form is not None and form.errors else 200))

    def done(self, path: str, notice_key: str) -> BaseResponse:
        """Redirect to a page that shows a notice (a key of ``layout.notice``)."""
        separator = "&" if "?" in path else "?"
        return redirect(f"{self.url(path)}{separator}done={notice_key}", 303)

    def position(self, listing: str) -> CursorKey | None:
        """Return where the page of a list begins; an invalid cursor starts from the beginning."""
        try:
            return page_position(_filters(), self.organization.id, listing)
        except InvalidInput:
            return None

    def pager(self, page: Page, listing: str) -> dict[str, str | None]:
        """Return the URLs of the first and the next page of a list, with the same search and filters."""
        filters = {name: value for name, value in _filters().items() if name != "cursor"}
        cursor = page_meta(page, _filters(), self.organization.id, listing)["next_cursor"]
        return {
            "first_url": _url_with(filters) if request.args.get("cursor") else None,
            "next_url": _url_with({**filters, "cursor": cursor}) if cursor else None,
        }


def portal_page(view: Callable[..., PageResponse]) -> Callable[..., PageResponse]:
    """Pass a PortalContext to the view in place of the organization's slug; require a sign-in."""

    @functools.wraps(view)
    @login_required
    def run(organization: str, **values: Any) -> PageResponse:
        return view(PortalContext(get_organization_by_slug(organization), current_user.actor), **values)

    return run


def search_query() -> str:
    """Return the text of the search box."""
    return request.args.get("q", "").strip()[:100]


def sign_in_url(slug: str, *, again: bool = False) -> str:
    """Return the URL of the organization's sign-in page that leads back here.

    ``again`` asks a signed-in user to sign in again.
    """
    # Werkzeug adds a "?" to the path of a request without a query.
    parameters = {"next": request.full_path.rstrip("?") if request.method == "GET" else request.path}
    if again:
        parameters["reauthenticate"] = "1"
    return f"/organizations/{slug}/login?{urlencode(parameters)}"


def home_slug(actor: Actor) -> str | None:
    """Return the organization where the user signed in: root's for an administrator of the installation."""
    session = session_for(actor.home_organization_id)
    return session.organization_slug if session else None


def layout_variables(organization: OrganizationSnapshot | None, actor: Actor | None) -> dict[str, Any]:
    """Return the variables of ``shell.html`` that do not depend on the page."""
    home = home_slug(actor) if actor else None
    return {
        "organization": organization,
        "navigation": navigation(organization, actor, request.path) if organization and actor else [],
        "person": {
            "label": actor.label,
            "account_url": f"/organizations/{home}/account",
            "sign_out_url": f"/organizations/{home}/logout",
        }
        if actor and home
        else None,
        "acts_from_root": bool(organization and actor and actor.home_organization_id != organization.id),
        "switch_url": "/portal",
        "status": notice(request.args.get("done")),
    }


def _filters() -> dict[str, str]:
    return {name: value for name, value in request.args.items() if value and name not in _NOT_FILTERS}


def _url_with(parameters: dict[str, str]) -> str:
    return f"{request.path}?{urlencode(parameters)}" if parameters else request.path
