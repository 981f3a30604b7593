"""Branding of an organization: its logo, and the style sheet of its accent color."""

from __future__ import annotations

import re
from typing import Any

import flask_babel
from flask import Response, request
from flask_wtf.file import FileField, FileRequired

from app.operations.directory.lookups import get_organization_by_slug
from app.operations.organizations import branding
from app.operations.organizations.settings import UpdatedSettings, get_settings
from app.portal.context import PageResponse, PortalContext, portal, portal_page
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound
from app.rules.organizations.branding import readable_accent
from app.web.browser_session import actor_for
from app.web.forms import PageForm
from app.web.languages import lazy_gettext
from app.web.request_bodies import accept_large_form

_UPLOAD = "portal.logo_upload"
_PAGE = "/settings/branding/logo"
_HEX_COLOR = re.compile(r"[0-9a-f]{6}")


class LogoForm(PageForm):
    """Uploads a logo."""

    logo = FileField(
        lazy_gettext("Image"),
        [FileRequired(lazy_gettext("Choose a file."))],
        description=flask_babel.lazy_gettext(
            "PNG, JPEG or WebP, up to %(size)s MiB and four million pixels. It is resized to at most 256 × 256 pixels.",
            size=branding.MAX_LOGO_BYTES // 1024 // 1024,
        ),
        render_kw={"accept": "image/png,image/jpeg,image/webp"},
    )


@portal.url_value_preprocessor
def allow_large_logo(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Allow a larger body for the logo form, but only for users who may change the logo.

    The body is read for its CSRF token before the view runs, so the permission is required here.
    """
    if endpoint != _UPLOAD or request.method != "POST":
        return
    try:
        slug = (values or {})["organization"]
        actor = actor_for(get_organization_by_slug(slug))
        branding.require_logo_permission(actor, slug)
    except (Forbidden, NotFound):
        return
    accept_large_form(branding.MAX_LOGO_BYTES)


@portal_page("/settings/branding/logo", "GET")
def logo_page(context: PortalContext) -> PageResponse:
    """Show the logo, with the form to replace it."""
    return _page(context, LogoForm())


@portal_page("/settings/branding/logo", "POST")
def logo_upload(context: PortalContext) -> PageResponse:
    """Save an uploaded image as the logo."""
    slug = context.organization.slug
    branding.require_logo_permission(context.actor, slug)
    form = LogoForm()
    if not form.validate_on_submit():
        return _page(context, form)
    with form.show_errors(InvalidInput, Conflict):
        content = form.logo.data.stream.read(branding.MAX_LOGO_BYTES + 1)
        return _done(context, branding.set_logo(context.actor, slug, content))
    return _page(context, form)


@portal_page("/settings/branding/logo/remove", "POST")
def logo_remove(context: PortalContext) -> PageResponse:
    """Remove the logo."""
    form = LogoForm()
    with form.show_errors(Conflict):
        return _done(context, branding.remove_logo(context.actor, context.organization.slug))
    return _page(context, form)


@portal.get("/portal/theme/<color>.css")
def theme(color: str) -> Response:
    """Return the style sheet of an accent color, for the page or, with ``?sample``, for parts of class ``sample``.

    It depends only on the URL, so it can be cached forever.
    """
    if _HEX_COLOR.fullmatch(color) is None:
        raise NotFound(lazy_gettext("This style sheet does not exist."))
    accent = readable_accent(f"#{color}")
    selector = ".sample" if "sample" in request.args else ":root"
    # These are tokens of static/app.css, with enough contrast on light and on dark pages.
    css = (
        f"{selector} {{ --accent: light-dark({accent.light}, {accent.dark}); "
        f"--on-accent: light-dark({accent.on_light}, {accent.on_dark}) }}\n"
    )
    response = Response(css, mimetype="text/css")
    response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response


def _done(context: PortalContext, saved: UpdatedSettings) -> PageResponse:
    return context.done(_PAGE, "saved" if saved.changed else "unchanged")


def _page(context: PortalContext, form: LogoForm) -> PageResponse:
    view = get_settings(context.actor, context.organization.slug)
    return context.render("portal/settings/logo.html", form=form, logo=view.document["branding"]["logo"])
