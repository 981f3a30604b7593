"""Branding of an organization: its logo, and the style sheet of its accent color."""

from __future__ import annotations

import re

import flask_babel
from flask import Response, request
from flask_wtf.file import FileField, FileRequired

from app.operations.organizations import branding
from app.operations.organizations.settings import UpdatedSettings, get_settings
from app.portal.context import PageResponse, PortalContext, allow_large_form, portal, portal_page
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.organizations.branding import readable_accent
from app.web.forms import PageForm
from app.web.languages import lazy_gettext

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


allow_large_form("logo_upload", branding.MAX_LOGO_BYTES, branding.require_logo_permission)


@portal_page("/settings/branding/logo", "GET")
def logo_page(context: PortalContext, form: LogoForm | None = None) -> PageResponse:
    """Show the logo, with the form to replace it."""
    logo = get_settings(context.actor, context.organization.slug).document["branding"]["logo"]
    return context.render("portal/settings/logo.html", form=form or LogoForm(), logo=logo)


@portal_page("/settings/branding/logo", "POST")
def logo_upload(context: PortalContext) -> PageResponse:
    """Save an uploaded image as the logo."""
    slug = context.organization.slug
    branding.require_logo_permission(context.actor, slug)
    form = LogoForm()
    if not form.validate_on_submit():
        return logo_page(context, form)
    with form.show_errors(InvalidInput, Conflict):
        content = form.logo.data.stream.read(branding.MAX_LOGO_BYTES + 1)
        return _done(context, branding.set_logo(context.actor, slug, content))
    return logo_page(context, form)


@portal_page("/settings/branding/logo/remove", "POST")
def logo_remove(context: PortalContext) -> PageResponse:
    """Remove the logo."""
    form = LogoForm()
    with form.show_errors(Conflict):
        return _done(context, branding.remove_logo(context.actor, context.organization.slug))
    return logo_page(context, form)


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
