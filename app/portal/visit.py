"""A visit: which organization the URL names, who is looking, and the frame around every page of the portal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.portal.navigation import entries
from app.portal.notices import notice
from app.rules.actor import Actor
from app.web.browser_session import actor_for, session_for

Answer = str | BaseResponse | tuple[str, int]


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a signed-in person to one organization's part of the portal."""

    organization: OrganizationSnapshot
    actor: Actor

    def url(self, path: str = "") -> str:
        """The address of a page of this organization."""
        return f"/portal/{self.organization.slug}{path}"

    def render(
        self, template: str, *, code: int = 200, pager: dict[str, str | None] | None = None, **context: Any
    ) -> BaseResponse:
        """The page within the shell; ``code`` is its HTTP status, ``pager`` as ``paging.pages_of`` gives it."""
        page = render_template(
            template,
            **frame(self.organization, self.actor),
            base=self.url(),
            may=self.actor.has_permission,
            **(pager or {}),
            **context,
        )
        return make_response(page, code)

    def done(self, path: str, what: str) -> BaseResponse:
        """Off to the page, which says what has been done (a key of ``notices``)."""
        joint = "&" if "?" in path else "?"
        return redirect(f"{self.url(path)}{joint}done={what}", 303)


def visiting(view: Callable[..., Answer]) -> Callable[..., Answer]:
    """The view gets a Visit in place of the organization's slug; strangers are sent to sign in first."""

    @functools.wraps(view)
    def run(organization: str, **values: Any) -> Answer:
        named = get_organization_by_slug(organization)
        actor = actor_for(named)
        if actor.kind == "anonymous":
            return redirect(sign_in_url(named.slug), 303)
        return view(Visit(named, actor), **values)

    return run


def sign_in_url(slug: str, *, again: bool = False) -> str:
    """The organization's sign-in page, which leads back here; ``again`` asks even somebody who is signed in."""
    # A trailing "?" of a request without query is no part of the address.
    parameters = {"next": request.full_path.rstrip("?") if request.method == "GET" else request.path}
    if again:
        parameters["reauthenticate"] = "1"
    return f"/organizations/{slug}/login?{urlencode(parameters)}"


def home_slug(actor: Actor) -> str | None:
    """The organization that the person signed in to: another than the one acted in for root's administrators."""
    session = session_for(actor.home_organization_id)
    return session.organization_slug if session else None


def frame(organization: OrganizationSnapshot | None, actor: Actor | None) -> dict[str, Any]:
    """The variables of shell.html that do not depend on the page."""
    home = home_slug(actor) if actor else None
    return {
        "organization": organization,
        "navigation": entries(organization, actor, request.path) if organization and actor else [],
        "person": {
            "label": actor.label,
            "account_url": f"/organizations/{home}/account",
            "sign_out_url": f"/organizations/{home}/logout",
        }
        if actor and home
        else None,
        "visiting_from_root": bool(organization and actor and actor.home_organization_id != organization.id),
        "switch_url": "/portal",
        "status": notice(request.args.get("done")),
    }
