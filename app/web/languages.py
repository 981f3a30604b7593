"""The language and time zone of a page, translation, and its formats of times, durations and counts.

The first supported language wins of: ``ui_locales`` of the pending authorization request, the signed-in user's
``locale``, the browser's ``Accept-Language``, the organization's ``localization.default_locale``, English. In the
portal, the user may be one of root.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from gettext import NullTranslations
from typing import cast

import flask_babel
from flask import Flask, Response, g, has_request_context, request
from jinja2 import pass_eval_context
from jinja2.nodes import EvalContext
from markupsafe import Markup, escape

from app.operations.directory.lookups import get_organization_by_id, get_organization_by_slug
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.sessions import SessionRecord
from app.operations.store import clock
from app.rules.authorization import authorization_request
from app.rules.errors import NotFound, OrganizationMoving
from app.rules.languages.dates import (
    format_date,
    format_duration,
    format_elapsed,
    format_exact_time,
    format_number,
    format_remaining,
    format_short_date,
    format_time,
    time_zone_of,
)
from app.rules.languages.translation import COUNTS, ENGLISH, catalog_of, direction_of, language_for
from app.rules.languages.translation import translate as translate_with
from app.web.browser_session import actor_for, current_sessions, session_for

_LONG = timedelta(days=60)
# More than the templates have, in all languages.
_MAX_MESSAGES = 10_000


def gettext(message: str, /, **values: object) -> str:
    """Translate a message into the page's language, and format it with the values if there are any."""
    text = _catalog().gettext(message)
    return text % values if values else text


def ngettext(singular: str, plural: str, num: int, /, **values: object) -> str:
    """Translate the form of a message that fits the number, which is also its value ``num``."""
    return _catalog().ngettext(singular, plural, num) % {"num": num, **values}


def _catalog() -> NullTranslations:
    return catalog_of(page_language())


class LazyText(str):
    """An English message of a module or a class, shown in the language of the page that prints it.

    It is compared, hashed and joined as English.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return gettext(str.__str__(self))

    def __format__(self, form: str) -> str:
        return format(str(self), form)

    def __html__(self) -> str:
        return str(escape(str(self)))


def lazy_gettext(message: str) -> str:
    """Mark a message of a module or a class for translation; a page translates it when it prints it."""
    return LazyText(message)


def html_gettext(message: str, **values: object) -> Markup:
    """Translate a message of a page and escape its values, which may be HTML."""
    return Markup(gettext(message)) % values  # noqa: S704 - messages are ours


@pass_eval_context
def _template_gettext(context: EvalContext, message: str, /, **values: object) -> str:
    if not values and context.autoescape:
        return _plain_html(page_language(), message)
    text = gettext(message)
    return (Markup(text) if context.autoescape else text) % values  # noqa: S704 - messages are ours


@pass_eval_context
def _template_ngettext(
    context: EvalContext, singular: str, plural: str, num: int, /, **values: object
) -> str:
    text = _catalog().ngettext(singular, plural, num)
    values.setdefault("num", num)
    return (Markup(text) if context.autoescape else text) % values  # noqa: S704 - messages are ours


@functools.lru_cache(_MAX_MESSAGES)
def _plain_html(language: str, message: str) -> Markup:
    """Return a message of a template that has no values: a percent sign is written twice in it."""
    return Markup(catalog_of(language).gettext(message)) % {}  # noqa: S704 - messages are ours


_NEVER, _FOREVER = lazy_gettext("never"), lazy_gettext("forever")


def register(app: Flask) -> None:
    """Set up Flask-Babel and the template filters."""
    flask_babel.Babel(app, locale_selector=page_language)
    # A message of a template is one line, wherever the template breaks it.
    app.jinja_env.policies["ext.i18n.trimmed"] = True
    # Flask-Babel's functions look up the catalog for each message, which would take a third of a page's time.
    app.jinja_env.globals.update(_=_template_gettext, gettext=_template_gettext, ngettext=_template_ngettext)
    app.jinja_env.globals.update(page_language=page_language, page_direction=_direction)
    for function in (translate, initials, ago, until, day, moment, duration, counted, number, percent):
        app.add_template_filter(function)


def page_language() -> str:
    """Return the language of this request's page."""
    if not has_request_context():
        return ENGLISH
    language = g.get("page_language")
    if language is None:
        language = g.page_language = _language()
    return cast(str, language)


def page_time_zone() -> tzinfo:
    """Return the time zone of the signed-in user (the claim ``zoneinfo``), or UTC."""
    if not has_request_context():
        return UTC
    if "time_zone" not in g:
        session = _session_of_reader()
        g.time_zone = time_zone_of(session.zoneinfo if session is not None else None)
    return cast(tzinfo, g.time_zone)


def _session_of_reader() -> SessionRecord | None:
    """Return the session that signs in to this page; in the portal it may be one of root.

    A page of no organization has the first session of this browser.
    """
    organization = _organization()
    if organization is None:
        return next(iter(current_sessions()), None) if request.blueprint == "portal" else None
    session = session_for(organization.id)
    if session is None and request.blueprint == "portal":
        session = session_for(actor_for(organization).home_organization_id)
    return session


def translate(text: str) -> str:
    """Translate a message of a rule or an operation into the page's language."""
    return translate_with(text, _catalog().gettext, page_language())


def apply_ui_locales(sent: Mapping[str, str], organization: OrganizationSnapshot | None = None) -> None:
    """Use the ``ui_locales`` of a client's request for this page; ``sent`` holds the request's parameters.

    ``organization`` is the client's, if the URL does not name it.
    """
    g.ui_locales = authorization_request.ui_locales(sent)
    if organization is not None:
        g.organization_of_language = organization
    g.pop("page_language", None)
    flask_babel.refresh()


def apply_browser_language() -> None:
    """Use the browser's language without a query: the page reports a failure, perhaps of the database."""
    g.page_language = language_for(accepted=_accepted())
    flask_babel.refresh()


def add_language_headers(response: Response) -> None:
    """Add ``Content-Language`` to a page, and ``Vary`` where the browser's language may have decided."""
    if "page_language" in g:
        response.headers["Content-Language"] = g.page_language
        response.vary.add("Accept-Language")


def _direction() -> str:
    return direction_of(page_language())


def _language() -> str:
    organization = _organization()
    session = _session_of_reader()
    return language_for(
        wished=g.get("ui_locales", ()),
        own=session.locale if session is not None else None,
        accepted=_accepted(),
        default=organization.settings["localization"]["default_locale"] if organization is not None else None,
    )


def _accepted() -> list[str]:
    return list(request.accept_languages.values())


def _organization() -> OrganizationSnapshot | None:
    """Return the page's organization, from the URL or from the client of the pending request."""
    noted = g.get("organization_of_language")
    if noted is not None:
        return cast(OrganizationSnapshot, noted)
    slug = (request.view_args or {}).get("organization") or g.get("organization_slug")
    try:
        if slug:
            return get_organization_by_slug(slug, fresh=False)
        key = g.get("organization_id")
        return get_organization_by_id(key, fresh=False) if key else None
    except (NotFound, OrganizationMoving):
        return None


def initials(name: str | None) -> str:
    """Return the text of an avatar: ``Ac`` for Acme, ``CB`` for Calendar Bot."""
    words = [word.lstrip("([{'\"") for word in (name or "").split()]
    if not words:
        return "?"
    if len(words) == 1:
        return words[0][:1].upper() + words[0][1:2].lower()
    return (words[0][:1] + words[1][:1]).upper()


def ago(value: datetime | None, never: str = _NEVER) -> Markup:
    """Format a past time as ``4 minutes ago`` with the exact time as its title; ``never`` for None."""
    if value is None:
        return escape(never)
    passed = clock.now() - value
    if passed > _LONG:
        return _time(value, _on_day(value))
    is_now = passed < timedelta(seconds=5)
    return _time(value, gettext("just now") if is_now else format_elapsed(passed, page_language()))


def until(value: datetime | None) -> Markup:
    """Format an expiry as ``in 22 hours``, or how long ago it was; "never" for None."""
    if value is None:
        return escape(_NEVER)
    left = value - clock.now()
    if left <= timedelta(0):
        return ago(value)
    return _time(value, _on_day(value) if left > _LONG else format_remaining(left, page_language()))


def day(value: datetime | None) -> Markup:
    """Format a date as ``21 Nov 2026``."""
    return escape(_NEVER) if value is None else _time(value, _day(value))


def moment(value: datetime | None) -> Markup:
    """Format a time as ``21 Nov 2026, 15:02 CET``."""
    if value is None:
        return escape(_NEVER)
    return _time(value, format_time(value, page_language(), page_time_zone()))


def duration(seconds: int | None) -> str:
    """Format seconds in the largest unit that divides them: ``1 day``, ``90 minutes``."""
    return str(_FOREVER) if seconds is None else format_duration(seconds, page_language())


def counted(value: int, noun: str) -> str:
    """Format a count of one of ``COUNTS``: ``1 client``, ``12 clients``, ``1,204 clients``."""
    return _catalog().ngettext(*COUNTS[noun], value) % {"num": number(value)}


def number(value: int) -> str:
    """Format a whole number as ``1,204``."""
    return format_number(value, page_language())


def percent(value: float, decimals: int = 0) -> str:
    """Format a percentage as ``12 %``."""
    return f"{format_number(value, page_language(), decimals)} %"


def short_day(value: datetime) -> str:
    """Format a date without the year as ``21 Nov``, in UTC."""
    return format_short_date(value, page_language())


def _day(value: datetime) -> str:
    return format_date(value, page_language(), page_time_zone())


def _on_day(value: datetime) -> str:
    """Format a date in place of a duration: ``expires 21 Nov 2026``, ``läuft am 21. Nov. 2026 ab``."""
    return gettext("%(day)s", day=_day(value))


def _time(value: datetime, text: str) -> Markup:
    exact = format_exact_time(value, page_language(), page_time_zone())
    at = value.astimezone(UTC).isoformat(timespec="seconds")
    return Markup(f'<time datetime="{at}" title="{escape(exact)}">{escape(text)}</time>')  # noqa: S704 - escaped
