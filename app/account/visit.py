"""A visit to one's own account: whose it is, and the frame around every page of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.rules.actor import Actor
from app.rules.languages.sentences import sentence
from app.web.branding import branding_of
from app.web.browser_session import account_actor
from app.web.languages import in_page_language

_PAGES = (
    (sentence("Profile"), "/profile", "person"),
    (sentence("Connected apps"), "/apps", "link"),
    (sentence("Sign-ins"), "/sessions", "screen"),
    (sentence("Security"), "/security", "key"),
    (sentence("Activity"), "/activity", "book"),
)
_WITHIN = {"/profile": ("/email", "/delete"), "/security": ("/password",)}
_NOTICES = {
    "saved": sentence("Saved."),
    "removed": sentence("Access is removed. The app's tokens no longer work."),
    "ended": sentence("That browser is signed out."),
    "forgotten": sentence("That browser is forgotten. The next sign-in there is told to you by mail."),
    "proof": sentence("A link is on its way. Your account has the address once you have opened it."),
    "address": sentence("Your address is confirmed."),
    "address-first": sentence(
        "Your address is confirmed. What was signed in or set up elsewhere before that has ended."
    ),
    "factor-added": sentence(
        "Your second factor is set up. Other browsers are signed out, and apps must ask you again."
    ),
    "factor-removed": sentence(
        "The second factor is removed. Other browsers are signed out, and apps must ask you again."
    ),
    "others-ended": sentence("Every other browser is signed out."),
    "passkey-added": sentence(
        "Your passkey is ready. Other browsers are signed out, and apps must ask you again."
    ),
    "passkey-removed": sentence(
        "The passkey is removed. Remove it from your device too, so that it is not offered."
    ),
    "password": sentence(
        "Your password is changed. Other browsers are signed out, and apps must ask you again."
    ),
}


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of somebody to their own account; another organization's sign-in does not count."""

    organization: OrganizationSnapshot
    actor: Actor

    def url(self, path: str = "") -> str:
        """The address of a page of the account."""
        return f"/organizations/{self.organization.slug}/account{path}"

    def render(self, template: str, *, code: int = 200, **context: Any) -> Response:
        """The page within the shell; ``code`` is its HTTP status."""
        navigation = [
            {
                "label": in_page_language(label),
                "url": self.url(path),
                "icon": icon,
                "current": request.path.startswith((self.url(path), *map(self.url, _WITHIN.get(path, ())))),
            }
            for label, path, icon in _PAGES
        ]
        if self.actor.permissions:
            portal = {
                "label": sentence("Portal"),
                "url": f"/portal/{self.organization.slug}",
                "icon": "apps",
                "current": False,
            }
            navigation.append(portal)
        page = render_template(
            template,
            organization=self.organization,
            navigation=navigation,
            person={
                "label": self.actor.label,
                "sign_out_url": f"/organizations/{self.organization.slug}/logout",
            },
            switch_url="/login",
            **branding_of(self.organization),
            base=self.url(),
            status=in_page_language(_NOTICES.get(request.args.get("done", ""), "")),
            **context,
        )
        return make_response(page, code)

    def done(self, path: str, what: str) -> Response:
        """Off to the page, which says what has been done."""
        return redirect(f"{self.url(path)}?done={what}", 303)


def own_account(view: Callable[..., Response]) -> Callable[..., Response]:
    """The view gets a Visit in place of the organization's slug; strangers are sent to sign in first."""

    @functools.wraps(view)
    def run(organization: str, **values: Any) -> Response:
        named = get_organization_by_slug(organization)
        actor = account_actor(named.id)
        if actor is None:
            following = request.path if request.method == "GET" else f"/organizations/{named.slug}/account"
            return redirect(f"/organizations/{named.slug}/login?{urlencode({'next': following})}", 303)
        return view(Visit(named, actor), **values)

    return run
