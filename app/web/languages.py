"""Languages of pages: which one a request is answered in, and the sentences, days and spans of its page in it.

The first that we speak counts: ``ui_locales`` of the app's request under way, the ``locale`` of who is signed in, what
the browser accepts, the organization's ``localization.default_locale``, English. The portal is English as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import flask_babel
from flask import Flask, Response, g, has_request_context, request

from app.operations.directory.lookups import (
    OrganizationSnapshot,
    get_organization_by_id,
    get_organization_by_slug,
)
from app.rules.authorization import authorization_request
from app.rules.errors import NotFound
from app.rules.languages.choice import ENGLISH, direction_of, language_for
from app.rules.languages.sentences import said
from app.web.browser_session import session_for

gettext: Callable[..., str] = flask_babel.gettext
ngettext: Callable[..., str] = flask_babel.ngettext

_ENGLISH_PAGES = ("/portal", "/setup")


def register(app: Flask) -> None:
    """Templates translate, and each page says its language and what it depends on."""
    flask_babel.Babel(app, locale_selector=page_language)
    # Sentences of templates are one line, however the template is broken.
    app.jinja_env.policies["ext.i18n.trimmed"] = True
    app.jinja_env.globals.update(page_language=page_language, page_direction=_direction)
    app.add_template_filter(in_page_language, "said")
    app.after_request(_tell)


def page_language() -> str:
    """The language of the page that answers this request."""
    if not has_request_context():
        return ENGLISH
    if "page_language" not in g:
        g.page_language = ENGLISH if _is_english() else _language()
    return cast(str, g.page_language)


def in_page_language(text: str) -> str:
    """The sentence of a rule or operation as this page says it."""
    return said(text, flask_babel.get_translations().gettext)


def follow_request(sent: Mapping[str, str], organization: OrganizationSnapshot | None = None) -> None:
    """The pages of this answer speak as the client's request wishes: ``sent`` holds its ``ui_locales``.

    ``organization`` is the client's, where the path names none.
    """
    g.wished_languages = authorization_request.ui_locales(sent)
    if organization is not None:
        g.organization_of_language = organization
    g.pop("page_language", None)
    flask_babel.refresh()


def follow_browser() -> None:
    """The page of this answer speaks as the browser wishes, and nothing is asked for that: it tells of a fault."""
    g.page_language = ENGLISH if _is_english() else language_for(accepted=_accepted())
    flask_babel.refresh()


def _direction() -> str:
    return direction_of(page_language())


def _is_english() -> bool:
    return request.path.startswith(_ENGLISH_PAGES)


def _language() -> str:
    organization = _organization()
    session = session_for(organization.id) if organization is not None else None
    return language_for(
        wished=g.get("wished_languages", ()),
        own=session.locale if session is not None else None,
        accepted=_accepted(),
        default=organization.settings["localization"]["default_locale"] if organization is not None else None,
    )


def _accepted() -> list[str]:
    return list(request.accept_languages.values())


def _organization() -> OrganizationSnapshot | None:
    """Whose page it is: named by the path or by the client whose request is under way."""
    noted = g.get("organization_of_language")
    if noted is not None:
        return cast(OrganizationSnapshot, noted)
    slug = (request.view_args or {}).get("organization") or g.get("organization_slug")
    try:
        if slug:
            return get_organization_by_slug(slug, fresh=False)
        key = g.get("organization_id")
        return get_organization_by_id(key, fresh=False) if key else None
    except NotFound:
        return None


def _tell(response: Response) -> Response:
    if "page_language" in g and response.mimetype == "text/html":
        response.headers["Content-Language"] = g.page_language
        if not _is_english():
            response.vary.add("Accept-Language")
    return response
