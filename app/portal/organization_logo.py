"""The logo of the organization: a form beside those of its branding."""

from __future__ import annotations

from typing import Any

from flask import request

from app.operations.directory.lookups import get_organization_by_slug
from app.operations.organizations import branding
from app.operations.organizations.settings import UpdatedSettings, get_settings
from app.portal.blueprint import portal
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.web.browser_session import actor_for
from app.web.forms import field_errors
from app.web.request_bodies import accept_large_form

_UPLOAD = "portal.logo_upload"
_PAGE = "/settings/branding/logo"


@portal.url_value_preprocessor
def let_pictures_in(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Accept the larger form of a logo from users who may change it.

    The form is read before any view runs, for its CSRF token, so the limit is set here.
    """
    if endpoint != _UPLOAD or request.method != "POST":
        return
    try:
        slug = (values or {})["organization"]
        actor = actor_for(get_organization_by_slug(slug))
        branding.require_logo_permission(actor, slug)
    except DomainError:
        return
    accept_large_form(branding.MAX_LOGO_BYTES)


@portal.get("/portal/<organization>/settings/branding/logo")
@visiting
def logo_page(visit: Visit) -> Answer:
    """The logo as it is, and the form for another."""
    return _page(visit)


@portal.post("/portal/<organization>/settings/branding/logo")
@visiting
def logo_upload(visit: Visit) -> Answer:
    """The picture stands on the organization's pages."""
    slug = visit.organization.slug
    branding.require_logo_permission(visit.actor, slug)
    file = request.files.get("logo")
    if file is None or not file.filename:
        return _page(visit, code=400, errors={"logo": "Choose a file."})
    try:
        content = file.stream.read(branding.MAX_LOGO_BYTES + 1)
        saved = branding.set_logo(visit.actor, slug, content)
    except (InvalidInput, Conflict) as refusal:
        return _page(visit, code=refusal.status, errors=field_errors(refusal))
    return _done(visit, saved)


@portal.post("/portal/<organization>/settings/branding/logo/remove")
@visiting
def logo_remove(visit: Visit) -> Answer:
    """The initials stand there again."""
    try:
        return _done(visit, branding.remove_logo(visit.actor, visit.organization.slug))
    except Conflict as refusal:
        return _page(visit, code=409, errors=field_errors(refusal))


def _done(visit: Visit, saved: UpdatedSettings) -> Answer:
    return visit.done(_PAGE, "saved" if saved.changed else "unchanged")


def _page(visit: Visit, *, code: int = 200, errors: dict[str, str] | None = None) -> Answer:
    view = get_settings(visit.actor, visit.organization.slug)
    return visit.render(
        "portal/settings/logo.html",
        code=code,
        logo=view.document["branding"]["logo"],
        errors=errors or {},
        most_mib=branding.MAX_LOGO_BYTES // 1024 // 1024,
    )
