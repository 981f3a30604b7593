"""The blueprint of account pages, the context of a page, and the layout around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, g, make_response, redirect, render_template, request
from flask_login import current_user
from msgspec import Struct
from werkzeug.wrappers import Response as BaseResponse

from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import UserSnapshot, get_user
from app.operations.sign_in.offered_providers import list_offered_providers
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.store.rows import Page
from app.operations.users.email_change import EmailVerificationEnded, WrongAccount
from app.operations.users.invitations import InvitationEnded
from app.operations.users.password_resets import ResetEnded
from app.operations.users.registrations import RegistrationEnded
from app.rules.actor import Actor
from app.rules.errors import DomainError, NotFound, TooManyRequests, Unavailable
from app.rules.languages.translation import lazy_gettext
from app.web.branding import branding_of
from app.web.browser_session import page_decorator, return_to_page, set_sign_in
from app.web.error_pages import page_of_error
from app.web.flash import flash, take_flash
from app.web.forms import PageForm
from app.web.languages import translate
from app.web.pagination import pager

account = Blueprint("account", __name__)
_PAGES = (
    (lazy_gettext("Profile"), "/profile", "person"),
    (lazy_gettext("Connected apps"), "/apps", "link"),
    (lazy_gettext("Sessions"), "/sessions", "screen"),
    (lazy_gettext("Security"), "/security", "key"),
    (lazy_gettext("Activity"), "/activity", "book"),
)
_ENDED_LINKS = (EmailVerificationEnded, InvitationEnded, RegistrationEnded, ResetEnded)
_SUBPAGES = {"/profile": ("/email", "/delete"), "/security": ("/password",)}


@account.errorhandler(DomainError)
def show_error(error: DomainError) -> BaseResponse:
    """Show an error as a page, or ask for a fresh sign-in that leads back here."""
    slug = (request.view_args or {}).get("organization")
    if isinstance(error, FreshSignInRequired) and slug:
        query = urlencode({**return_to_page(), "reauthenticate": "1"})
        return redirect(f"/organizations/{slug}/login?{query}", 303)
    title = lazy_gettext("Something went wrong")
    if isinstance(error, NotFound):
        title = lazy_gettext("Page not found")
    elif isinstance(error, _ENDED_LINKS):
        title = lazy_gettext("This link no longer works")
    return page_of_error(error, title, None, back=_way_back(error, slug))


def return_parameters() -> dict[str, str]:
    """Return the parameters that say where the sign-in leads; every page of the sign-in passes them on."""
    restored: dict[str, str] | None = g.get("return_parameters")
    if restored is not None:
        return restored
    names = ("request", "next", "reauthenticate", "account")
    return {name: request.values[name] for name in names if name in request.values}


def restore_return_parameters(parameters: Mapping[str, str]) -> None:
    """Let this request go on with the parameters with which a sign-in began, which its URL does not have."""
    g.return_parameters = dict(parameters)


def _way_back(error: DomainError, slug: str | None) -> tuple[str, str]:
    """Return the URL and label of the error page's button: the page that failed only if it can be tried again."""
    home = f"/organizations/{slug}"
    if isinstance(error, Unavailable):
        # With the authorization request, so that the user still comes to the app.
        parameters = urlencode(return_parameters())
        return f"{request.path}?{parameters}" if parameters else request.path, lazy_gettext("Try again")
    if slug and request.path.startswith(f"{home}/account/"):
        return f"{home}/account", lazy_gettext("Back to my account")
    if not slug or isinstance(error, NotFound) or request.path in {f"{home}/account", f"{home}/login"}:
        return "/login", lazy_gettext("Choose an organization")
    if isinstance(error, EmailVerificationEnded):
        return f"{home}/account/email", lazy_gettext("Request a new link")
    if isinstance(error, WrongAccount):
        query = urlencode({"account": "another", "next": request.path})
        return f"{home}/login?{query}", lazy_gettext("Use another account")
    if isinstance(error, ResetEnded):
        return f"{home}/forgot", lazy_gettext("Request a new link")
    return f"{home}/login", lazy_gettext("Back to sign in")


_NOTICES = {
    "saved": lazy_gettext("Saved."),
    "removed": lazy_gettext("Access removed. The app was signed out."),
    "ended": lazy_gettext("The browser was signed out."),
    "forgotten": lazy_gettext("Browser removed. We'll email you the next time you sign in there."),
    "address": lazy_gettext("Your email address is verified."),
    "address-first": lazy_gettext(
        "Your email address is verified. For your security, we signed you out of other browsers and "
        "removed verification methods that were set up before."
    ),
    "identity-linked": lazy_gettext("Linked. You can sign in with this account from now on."),
    "identity-removed": lazy_gettext(
        "Unlinked. You were signed out of other browsers, and apps will have to ask for access again."
    ),
    "identity-expired": lazy_gettext("This took too long, or was already used. Try again."),
    "identity-cancelled": lazy_gettext("Nothing was linked, because the sign-in was cancelled."),
    "identity-failed": lazy_gettext(
        "Nothing was linked, because the provider couldn't sign you in. Try again."
    ),
    "identity-withdrawn": lazy_gettext("Nothing was linked, because the provider is no longer available."),
    "identity-not_fresh": lazy_gettext("Nothing was linked, because the provider didn't ask you to sign in."),
    "identity-taken": lazy_gettext("Nothing was linked. This account is already linked to another user."),
    "identity-already_linked": lazy_gettext(
        "You have already linked an account of this provider. Unlink it first."
    ),
    "factor-added": lazy_gettext(
        "Two-step verification is on. You were signed out of other browsers, and apps will have to "
        "ask for access again."
    ),
    "factor-removed": lazy_gettext(
        "Authenticator app removed. You were signed out of other browsers, and apps will have to ask "
        "for access again."
    ),
    "codes-replaced": lazy_gettext("Your old codes no longer work."),
    "others-ended": lazy_gettext("You were signed out of all other browsers."),
    "passkey-added": lazy_gettext(
        "Your passkey is ready. You were signed out of other browsers, and apps will have to ask for "
        "access again."
    ),
    "passkey-removed": lazy_gettext(
        "Passkey removed. Delete it from your device too, so that your browser no longer offers it."
    ),
    "password": lazy_gettext(
        "Password changed. You were signed out of other browsers, and apps will have to ask for access again."
    ),
}


class AccountContext(Struct, frozen=True):
    """A request of a signed-in user to a page of their account at the organization in the URL."""

    organization: OrganizationSnapshot
    actor: Actor

    @property
    def user(self) -> UserSnapshot:
        """Return the signed-in user."""
        if self.actor.user_id is None:
            raise RuntimeError("an account page without a user")
        return get_user(self.organization.id, self.actor.user_id)

    def url(self, path: str = "") -> str:
        """Return the URL of an account page."""
        return f"/organizations/{self.organization.slug}/account{path}"

    def render(
        self, template: str, *, form: PageForm | None = None, page: Page[Any] | None = None, **context: Any
    ) -> BaseResponse:
        """Render a page in the account layout.

        ``page`` is a page of the list at the current path, whose links to the others are rendered with it.
        """
        once = take_flash(self.organization.id)
        navigation = [
            {
                "label": translate(label),
                "url": self.url(path),
                "icon": icon,
                "current": request.path.startswith((self.url(path), *map(self.url, _SUBPAGES.get(path, ())))),
            }
            for label, path, icon in _PAGES
        ]
        if self.actor.permissions:
            portal = {
                "label": translate(lazy_gettext("Portal")),
                "url": f"/portal/{self.organization.slug}",
                "icon": "apps",
                "current": False,
            }
            navigation.append(portal)
        return _response(
            template,
            form,
            None,
            organization=self.organization,
            navigation=[(None, navigation)],
            section=next((entry["label"] for entry in navigation if entry["current"]), None),
            person={
                "id": current_user.session.user_public_id,
                "label": current_user.session.user_name or self.actor.label,
                "detail": self.actor.label if current_user.session.user_name else None,
                "email": self.actor.label,
                "sign_out_url": f"/organizations/{self.organization.slug}/logout",
            },
            switch_url="/login",
            **branding_of(self.organization),
            base=self.url(),
            status=translate(_NOTICES.get(once.get("notice", ""), "")),
            **({"page": page, **pager(page, self.organization.id, request.path)} if page else {}),
            **{"once": once, **context},
        )

    def done(
        self, path: str, notice_key: str | None = None, *, token: str | None = None, **once: Any
    ) -> BaseResponse:
        """Redirect to an account page that shows a notice (a key of ``_NOTICES``) and the values of ``once``, one time.

        ``token`` is that of the session that replaced the current one, if any; the response sets its cookie.
        """
        response = redirect(self.url(path), 303)
        if token is not None:
            set_sign_in(response, self.organization.id, token)
        values = once if notice_key is None else {**once, "notice": notice_key}
        return flash(response, values, organization_id=self.organization.id, token=token)


def provider_name(organization: OrganizationSnapshot, slug: str) -> str:
    """Return the name of the identity provider, or its slug if it is not offered any more."""
    names = {provider.slug: provider.name for provider in list_offered_providers(organization)}
    return names.get(slug, slug)


account_page = page_decorator(account, "/organizations", AccountContext)


def organization_page(
    template: str,
    organization: OrganizationSnapshot,
    *,
    form: PageForm | None = None,
    code: int | None = None,
    **context: Any,
) -> BaseResponse:
    """Render a page with the organization's branding, for users who are not signed in.

    ``code`` is the HTTP status, by default that of the form.
    """
    return _response(
        template,
        form,
        code,
        organization=organization,
        title=organization.title,
        **branding_of(organization),
        **context,
    )


def _response(template: str, form: PageForm | None, code: int | None, /, **context: Any) -> BaseResponse:
    page = render_template(template, form=form, **context)
    response: BaseResponse = make_response(page, code or (form.response_status if form else 200))
    if form is not None and isinstance(form.refusal, TooManyRequests):
        response.headers["Retry-After"] = str(form.refusal.retry_after)
    return response
