"""The context of a portal page, the layout around it, and what is shown once after an action."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, make_response, redirect, render_template, request
from msgspec import Struct, field
from msgspec.structs import astuple
from werkzeug.wrappers import Response as BaseResponse

from app.config import VERSION
from app.operations.audit.failure_groups import MAX_BADGE, count_recent_failures
from app.operations.directory.lookups import get_organization_by_id, get_organization_by_slug
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.mail import emails
from app.operations.sign_in.reauthentication import FreshSignInRequired, is_sign_in_fresh
from app.operations.sign_in.sessions import SessionRecord
from app.operations.store.rows import Page, PageRequest
from app.portal.charts import meter, sparkline
from app.portal.navigation import navigation, settings_navigation
from app.portal.notices import NOTICES, NOTIFIED
from app.rules.actor import Actor
from app.rules.directory.permissions import effective_roles
from app.rules.errors import Conflict, DomainError, Forbidden, NotFound, TooManyRequests
from app.rules.fields import has_invisible_character
from app.rules.filters import MAX_LENGTH
from app.web.browser_session import actor_for, current_sessions, page_decorator, return_to_page, session_for
from app.web.error_pages import error_response, page_of_error
from app.web.flash import Notice, flash, take_flash
from app.web.forms import PageForm
from app.web.languages import lazy_gettext, translate
from app.web.pagination import page_in_url, pager
from app.web.request_bodies import accept_large_form

portal = Blueprint("portal", __name__)
portal.add_app_template_filter(sparkline)
portal.add_app_template_filter(meter)
portal.add_app_template_global(settings_navigation)

# Kind of error, title of the page, what to do.
_ERRORS: tuple[tuple[type[DomainError], str, str | None], ...] = (
    (
        NotFound,
        lazy_gettext("Page not found"),
        lazy_gettext("The page may have been deleted, or it belongs to another organization."),
    ),
    (
        Forbidden,
        lazy_gettext("You don't have access"),
        lazy_gettext("Ask an administrator of the organization for access."),
    ),
    (TooManyRequests, lazy_gettext("Too many attempts"), None),
)


@portal.errorhandler(DomainError)
def show_error(error: DomainError) -> BaseResponse:
    """Show an error as a page, or ask for a fresh sign-in that leads back here."""
    if error.status >= 500:
        return error_response(error)
    slug = (request.view_args or {}).get("organization")
    if isinstance(error, FreshSignInRequired) and slug:
        home = home_slug(actor_for(get_organization_by_slug(slug)))
        return redirect(sign_in_again_url(home or slug), 303)
    title, hint = next(
        ((title, hint) for kind, title, hint in _ERRORS if isinstance(error, kind)),
        (lazy_gettext("Something went wrong"), None),
    )
    return page_of_error(error, title, hint, back=_way_back(error, slug))


def _way_back(error: DomainError, slug: str | None) -> tuple[str, str]:
    is_here = any(session.organization_slug == slug for session in current_sessions())
    if slug is None or (isinstance(error, NotFound) and not is_here):
        return "/portal", lazy_gettext("Choose an organization")
    if request.path == f"/portal/{slug}":
        # A member cannot see the overview, so a link to it would lead in circles.
        return f"/organizations/{slug}/account", lazy_gettext("Go to my account")
    return f"/portal/{slug}", lazy_gettext("Back to the overview")


PageResponse = str | BaseResponse | tuple[str, int]
_MAX_SWITCHER_ENTRIES = 5


class Undo(Struct, frozen=True):
    """The form that reverses an action: its path, the permission that it requires, and its hidden fields."""

    path: str
    permission: str
    fields: dict[str, str] = field(default_factory=dict)


class Confirmation(Struct, frozen=True):
    """The page that asks before something ends for others: what stops, with numbers, and the button.

    ``parents`` are the labels and paths of the parent pages; the last one is where Cancel leads. ``note`` is a warning.
    """

    title: str
    button: str
    parents: tuple[tuple[str, str], ...]
    impact: tuple[str | None, ...]
    note: str = ""


class PortalContext(Struct, frozen=True):
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
        error: DomainError | None = None,
        code: int | None = None,
        page: Page[Any] | None = None,
        listing: str | None = None,
        **variables: Any,
    ) -> BaseResponse:
        """Render a page within the layout; the status is that of the error or the form, unless ``code`` is given.

        ``page`` is a page of the list at the path ``listing``, the current one by default. The links to the others
        are rendered with it.
        """
        once = take_flash(self.actor.home_organization_id)
        own_path = request.path if listing is None else self.url(listing)
        content = render_template(
            template,
            **layout_variables(self.organization, self.actor),
            status=self._notice(once),
            base=self.url(),
            may=self.actor.has_permission,
            form=form,
            error=translate(error.description) if error else None,
            **({"page": page, **pager(page, self.organization.id, own_path)} if page else {}),
            **{"once": once, **variables},
        )
        status = error.status if error else form.response_status if form else 200
        return make_response(content, code or status)

    def sign_in_again_url(self) -> str | None:
        """Return the URL of a new sign-in that leads back here, or None if the sign-in is recent.

        A form offers it if some of its changes require a recent sign-in.
        """
        if is_sign_in_fresh(self.actor):
            return None
        return sign_in_again_url(home_slug(self.actor) or self.organization.slug)

    def done(
        self, path: str, notice_key: str | None = None, *, undo: Undo | None = None, **once: Any
    ) -> BaseResponse:
        """Redirect to a page that shows a notice (a key of ``NOTICES``) and the values of ``once``, a single time.

        A secret and its ``kind`` are shown by ``portal/parts/secret_banner.html``. ``undo`` is offered in the notice.
        """
        values: dict[str, Any] = {**once, "notice": notice_key, "undo": undo and astuple(undo)}
        return flash(
            redirect(self.url(path), 303),
            {name: value for name, value in values.items() if value is not None},
            organization_id=self.actor.home_organization_id,
        )

    def confirm(self, form: PageForm, confirmation: Confirmation) -> BaseResponse:
        """Render the confirmation of an action, with the fields of the form."""
        parents = [(label, self.url(path)) for label, path in confirmation.parents]
        in_settings = confirmation.parents[0][1] == "/settings"
        return self.render(
            "portal/confirm.html",
            form=form,
            confirmation=confirmation,
            breadcrumb=parents,
            in_settings=in_settings,
        )

    def confirm_change(
        self,
        confirmation: Confirmation,
        change: Callable[[], object],
        path: str,
        notice_key: str,
        undo: Undo | None = None,
    ) -> BaseResponse:
        """Make a change once it is confirmed, and show the notice on the page at ``path``; until then, ask."""
        form = PageForm()
        if form.validate_on_submit():
            with form.show_errors(Conflict):
                change()
                return self.done(path, notice_key, undo=undo)
        return self.confirm(form, confirmation)

    def _notice(self, once: dict[str, Any]) -> Notice | None:
        key = once.get("notice", "")
        text = NOTICES.get(key)
        if text is None:
            return None
        if key in NOTIFIED and emails.is_possible():
            text = f"{text} {NOTIFIED[key]}"
        undo = Undo(*once["undo"]) if "undo" in once else None
        if undo is None or not self.actor.has_permission_for_own(undo.permission):
            return Notice(text)
        return Notice(text, self.url(undo.path), undo.fields)

    def page_request(self) -> PageRequest:
        """Return which page of the list at the current path the URL asks for."""
        return page_in_url(self.organization.id)


portal_page = page_decorator(portal, "/portal", PortalContext)


def allow_large_form(view: str, max_bytes: int, require: Callable[[Actor, str], None]) -> None:
    """Let users upload a file of this size to the view's form, if ``require`` raises nothing for them.

    The form is read before the view runs, for its CSRF token, so the permission is required here. ``require`` gets the
    actor and the organization's slug.
    """

    @portal.url_value_preprocessor
    def allow(endpoint: str | None, values: dict[str, Any] | None) -> None:
        if endpoint != f"{portal.name}.{view}" or request.method != "POST":
            return
        try:
            slug = (values or {})["organization"]
            require(actor_for(get_organization_by_slug(slug)), slug)
        except (Forbidden, NotFound):
            return
        accept_large_form(max_bytes)


def search_query() -> str:
    """Return the text of the search box."""
    return request.args.get("q", "").strip()[:100]


def sent_filters(names: Iterable[str]) -> dict[str, str]:
    """Return the filters of the URL, empty if they are not sent, in the form that lists take.

    Copied text may have invisible characters and spaces around it. They are removed.
    """
    return {name: _visible(request.args.get(name, "")) for name in names}


def _visible(text: str) -> str:
    kept = "".join(char for char in text if not has_invisible_character(char))
    return unicodedata.normalize("NFC", kept).strip()[:MAX_LENGTH].strip()


def sign_in_again_url(slug: str) -> str:
    """Return the URL of the organization's sign-in page that asks a signed-in user again and leads back here."""
    return f"/organizations/{slug}/login?{urlencode({**return_to_page(), 'reauthenticate': '1'})}"


def home_slug(actor: Actor) -> str | None:
    """Return the organization where the user signed in: root's for an administrator of the installation."""
    session = session_for(actor.home_organization_id)
    return session.organization_slug if session else None


def layout_variables(organization: OrganizationSnapshot | None, actor: Actor | None) -> dict[str, Any]:
    """Return the variables of ``shell.html`` that do not depend on the page."""
    home = session_for(actor.home_organization_id) if actor else None
    groups = (
        navigation(organization, actor, request.path, counts=_counts(actor)) if organization and actor else []
    )
    acts_from_root = bool(organization and actor and actor.home_organization_id != organization.id)
    return {
        "organization": organization,
        "navigation": groups,
        "section": next((entry.label for _, entries in groups for entry in entries if entry.current), None),
        "switcher": _switcher(organization, home) if organization and home else None,
        "search_url": f"/portal/{organization.slug}/search" if organization and home else None,
        "person": {
            "id": home.user_public_id,
            "label": home.user_name or actor.label,
            "detail": " · ".join([*role_names(home), *([actor.label] if home.user_name else [])]),
            "account_url": f"/organizations/{home.organization_slug}/account",
            "sign_out_url": f"/organizations/{home.organization_slug}/logout",
        }
        if actor and home
        else None,
        "acts_from_root": acts_from_root,
        "can_resume": bool(acts_from_root and home and "organizations:write" in home.permissions),
        "switch_url": "/portal",
        "version": VERSION,
    }


def role_names(session: SessionRecord) -> list[str]:
    """Return the names of the user's roles in the organization of the session."""
    known = effective_roles(get_organization_by_id(session.organization_id, fresh=False).settings)
    return [translate(known[role].name) if role in known else role for role in session.roles]


def _counts(actor: Actor) -> dict[str, str]:
    failed = count_recent_failures(actor)
    return {"/logs": f"{MAX_BADGE}+" if failed > MAX_BADGE else str(failed)} if failed else {}


def lists_all_organizations(session: SessionRecord) -> bool:
    """Return whether the user of the session may open the list of the instance's organizations."""
    return session.is_root and "organizations:read" in session.permissions


def _switcher(organization: OrganizationSnapshot, home: SessionRecord) -> dict[str, Any]:
    """Return the other organizations of this browser, and where to find the rest."""
    others = [session for session in current_sessions() if session.organization_id != organization.id]
    lists_all = lists_all_organizations(home)
    all_url = "/portal/root/organizations" if lists_all else "/portal"
    is_long = lists_all or len(others) > _MAX_SWITCHER_ENTRIES
    return {
        "sessions": others[:_MAX_SWITCHER_ENTRIES],
        "search_url": all_url if is_long else None,
        "all_url": all_url,
    }
