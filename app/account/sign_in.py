"""The organization chooser, the sign-in page of an organization, and signing out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.context import account, organization_page, provider_name, return_parameters
from app.account.forms import FindOrganizationForm, SignInForm
from app.operations.authorization.authorization_requests import (
    AuthorizationRequestRecord,
    RequestEnded,
    find_request,
)
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.organizations.setup import is_set_up
from app.operations.sign_in.offered_providers import list_offered_providers
from app.operations.sign_in.passkey_sign_in import (
    PasskeyRefused,
    begin_passkey_sign_in,
    is_passkey_sign_in_offered,
)
from app.operations.sign_in.password_sign_in import SignInRefused, sign_in
from app.operations.sign_in.provider_metadata import ProviderUnusable
from app.operations.sign_in.sessions import SessionRecord, end_session
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn
from app.operations.users.provider_sign_in import INVITATION, begin_provider_sign_in
from app.operations.users.sign_up import next_registration_step
from app.rules.authorization.interaction import demands_new_sign_in
from app.rules.errors import NotFound, OrganizationMoving
from app.rules.sign_in.second_factors import MfaRequirement
from app.rules.users.profile import is_registration_open
from app.web.branding import logo_of
from app.web.browser_session import (
    account_actor,
    anonymous_actor,
    browser_id,
    clear_sign_in,
    current_sessions,
    forget_sign_ins,
    known_browser,
    own_path,
    session_for,
    set_sign_in,
    sign_in_token,
)
from app.web.flash import flash, take_flash
from app.web.headers import page_class
from app.web.languages import apply_ui_locales, gettext
from app.web.request_log import request_id

_STATUS = {
    "mismatch": 400,
    "wait": 429,
    "capped": 429,
    "disabled": 403,
    "reset": 403,
    "suspended": 403,
    "password_off": 403,
    # Of identity providers; 403 for others.
    "expired": 400,
    "cancelled": 400,
    "failed": 400,
    "withdrawn": 404,
    "unavailable": 503,
}


@account.get("/")
def start_page() -> Response:
    """Redirect to setup on the first run, and to the portal after that."""
    return redirect("/portal" if is_set_up() else "/setup", 303)


def _redirect_to_login(slug: str, next_path: str) -> Response:
    query = f"?{urlencode({'next': next_path})}" if next_path else ""
    return redirect(f"/organizations/{slug}/login{query}", 303)


@account.get("/login")
@page_class("flow")
def choose_organization() -> Response:
    """Show the sessions of this browser and a search field for another organization.

    ``to=password`` leads to the page that changes the password there.
    """
    form = FindOrganizationForm(request.args)
    next_path = own_path(request.args.get("next"), "")
    wants_password = request.args.get("to") == "password"
    sessions = current_sessions()
    if sessions:
        form.organization.label.text = gettext("Another organization")
    if form.organization.data:
        slug = form.organization.data.lower()
        if wants_password:
            next_path = f"/organizations/{slug}/account/password"
        try:
            slug = get_organization_by_slug(slug).slug
        except OrganizationMoving:
            # Its own path leads to the cell that serves it.
            return _redirect_to_login(slug, next_path)
        except NotFound:
            form.add_error(
                gettext(
                    "There is no organization with this name. Ask the person who invited you for its URL."
                ),
                "organization",
            )
        else:
            return _redirect_to_login(slug, next_path)
    page = render_template(
        "account/chooser.html",
        sessions=sessions,
        form=form,
        next_path=next_path,
        wants_password=wants_password,
        has_root=is_set_up(),
        once=take_flash(None),
    )
    return make_response(page, 404 if form.errors else 200)


@account.route("/organizations/<organization>/login", methods=["GET", "POST"])
@page_class("flow")
def sign_in_page(organization: str) -> Response:
    """Sign in with email and password, then return to the app or page that asked for it.

    ``request`` is the token of a pending authorization request, ``next`` a path of this service, ``reauthenticate``
    asks for the password even with a session, ``account=another`` means that another user will sign in, and ``emailed``
    that an email has the link. ``identity_provider``, here or in the authorization request, leads to one at once.
    """
    org = get_organization_by_slug(organization, fresh=False)
    if "emailed" in request.args and not open_request(org):
        return redirect(f"/organizations/{org.slug}/login", 303)
    pending = pending_request(org)
    form = SignInForm()
    if form.validate_on_submit():
        return _sign_in(org, pending, form)
    if form.is_submitted():
        return sign_in_form(org, pending, form, code=400)
    session = session_for(org.id)
    wants_another = "account" in request.args
    wants_form = wants_another or "reauthenticate" in request.args
    if session is not None and pending is None and not wants_form:
        return redirect(_home(org, bool(session.permissions)), 303)
    requested = pending.sent if pending is not None else request.args
    hint = ""
    if not wants_another:
        hint = requested.get("login_hint", "") or (session.user_email if session is not None else "")
    if pending and session and not wants_form and _is_signed_in_for(pending, session, hint):
        return redirect(_resume_url(org), 303)
    provider = "" if wants_another else requested.get("identity_provider", "")
    if provider in {offered.slug for offered in list_offered_providers(org)}:
        return begin_with_provider(org, provider, pending, return_parameters())
    form.email.data = hint[:254]
    return sign_in_form(
        org, pending, form, is_reauthentication=session is not None and hint == session.user_email
    )


def _is_signed_in_for(pending: AuthorizationRequestRecord, session: SessionRecord, hint: str) -> bool:
    """Return whether the user has signed in since the app's request, such as in another tab.

    That always satisfies the request, so its next page does not lead back here. The app may expect another user.
    """
    is_expected = hint == session.user_email and "id_token_hint" not in pending.sent
    return is_expected and session.began_at >= pending.created_at


def _sign_in(
    organization: OrganizationSnapshot, pending: AuthorizationRequestRecord | None, form: SignInForm
) -> Response:
    outcome = sign_in(
        organization.id,
        form.email.data,
        form.password.data,
        ip_address=request.remote_addr,
        request_id=request_id(),
        browser=current_browser(organization),
    )
    if not isinstance(outcome, SignInRefused):
        return continue_sign_in(organization, outcome, pending)
    if outcome.reason == "mismatch":
        form.add_error(gettext("Check your password and try again."), "password")
    response = sign_in_form(organization, pending, form, refused=outcome, code=_STATUS[outcome.reason])
    if outcome.retry_after:
        response.headers["Retry-After"] = str(outcome.retry_after)
    return response


@account.get("/organizations/<organization>/logout")
@page_class("flow")
def sign_out_page(organization: str) -> Response:
    """Ask before signing out, or say that the user is signed out (CF-4)."""
    org = get_organization_by_slug(organization)
    return organization_page("account/sign_out.html", org, session=session_for(org.id))


@account.post("/organizations/<organization>/logout")
@page_class("flow")
def sign_out(organization: str) -> Response:
    """End the session at the organization, in the database and in the browser."""
    org = get_organization_by_slug(organization)
    actor = account_actor(org.id)
    if actor is not None:
        end_session(actor)
    response = redirect(request.path, 303)
    clear_sign_in(response, org.id)
    return response


def redirect_with_notice(
    organization: OrganizationSnapshot, parameters: Mapping[str, str], email: str
) -> Response:
    """Redirect to the sign-in page, which says what was done, as its parameters name it, and has the email already.

    It does so in a browser in which another user is signed in too, instead of leading to their pages.
    """
    forget_sign_ins()
    another = {"account": "another"} if session_for(organization.id) is not None else {}
    query = urlencode({**another, **parameters})
    response = redirect(f"/organizations/{organization.slug}/login?{query}", 303)
    return flash(response, {"email": email}, organization_id=None)


def begin_with_provider(
    organization: OrganizationSnapshot,
    provider: str,
    pending: AuthorizationRequestRecord | None,
    parameters: dict[str, str],
) -> Response:
    """Redirect to the identity provider, or show why that is impossible. ``parameters`` say where that leads."""
    sent = pending.sent if pending is not None else {}
    try:
        url = begin_provider_sign_in(
            anonymous_actor(organization),
            organization,
            provider,
            current_browser(organization),
            parameters=parameters,
            login_hint=sent.get("login_hint", "")[:254],
            must_be_fresh="reauthenticate" in parameters
            or (pending is not None and demands_new_sign_in(sent, pending.client.document)),
            selects_account="account" in parameters or "select_account" in sent.get("prompt", "").split(),
        )
    except (NotFound, ProviderUnusable) as error:
        # The page with the button may have been opened before the provider was disabled.
        reason = "withdrawn" if isinstance(error, NotFound) else "unavailable"
        return refuse_provider(organization, provider, pending, reason, parameters.get(INVITATION))
    return redirect(url, 303)


def refuse_provider(
    organization: OrganizationSnapshot,
    slug: str,
    pending: AuthorizationRequestRecord | None,
    reason: str,
    invitation: str | None = None,
) -> Response:
    """Show the reason why a sign-in with an identity provider failed: on the sign-in page, or on the invitation's."""
    if invitation is not None:
        query = urlencode({"refused": reason, "provider": slug})
        return redirect(
            f"/organizations/{organization.slug}/invite/{quote(invitation, safe='')}?{query}", 303
        )
    return sign_in_form(
        organization,
        pending,
        SignInForm(formdata=None),
        refused_provider=(reason, provider_name(organization, slug)),
        code=_STATUS.get(reason, 403),
    )


def continue_sign_in(
    organization: OrganizationSnapshot,
    outcome: SignedIn | SecondStepRequired,
    pending: AuthorizationRequestRecord | None,
) -> Response:
    """Redirect to the destination with a session, or to two-step verification first.

    The status is 303, so that no browser sends the password again (RU-7).
    """
    if isinstance(outcome, SecondStepRequired):
        return redirect(second_step_url(organization, outcome.token, outcome.purpose), 303)
    response = redirect(destination_of(organization, outcome, pending), 303)
    set_sign_in(response, organization.id, outcome.token, known=outcome.known_cookie)
    return response


def second_step_url(organization: OrganizationSnapshot, token: str, requirement: MfaRequirement) -> str:
    """Return the URL of the page on which the pending sign-in of the token continues."""
    page = "verify" if requirement is MfaRequirement.VERIFY else "enrol"
    query = urlencode({"sign_in": token, **return_parameters()})
    return f"/organizations/{organization.slug}/login/{page}?{query}"


def destination_of(
    organization: OrganizationSnapshot, signed_in: SignedIn, pending: AuthorizationRequestRecord | None
) -> str:
    """Return where the sign-in leads: to the pending authorization request, to ``next``, or home."""
    if pending is not None:
        return _resume_url(organization)
    return _home(organization, signed_in.has_permissions)


def _resume_url(organization: OrganizationSnapshot) -> str:
    query = urlencode({"request": return_parameters()["request"]})
    return f"/organizations/{organization.slug}/oauth/authorize/resume?{query}"


def current_browser(organization: OrganizationSnapshot) -> Browser:
    """Return the browser of this request as operations expect it."""
    return Browser(
        browser_id(),
        request.headers.get("User-Agent", ""),
        sign_in_token(organization.id),
        known_browser(organization.id),
    )


def pending_request(organization: OrganizationSnapshot) -> AuthorizationRequestRecord | None:
    """Return the authorization request that the sign-in belongs to, if any. Raises RequestEnded."""
    token = return_parameters().get("request")
    if not token:
        return None
    pending = find_request(organization.id, token, browser_id(), fresh=False)
    if pending is None:
        raise RequestEnded
    apply_ui_locales(pending.sent, pending.client.organization)
    return pending


def open_request(organization: OrganizationSnapshot) -> dict[str, str]:
    """Return the parameter of the authorization request to which an emailed link returns.

    Nothing, if it has ended meanwhile or the link was opened in another browser.
    """
    try:
        return (
            {"request": return_parameters()["request"]} if pending_request(organization) is not None else {}
        )
    except RequestEnded:
        return {}


def sign_in_form(
    organization: OrganizationSnapshot,
    pending: AuthorizationRequestRecord | None,
    form: SignInForm,
    *,
    refused: SignInRefused | None = None,
    refused_passkey: PasskeyRefused | None = None,
    refused_provider: tuple[str, str] | None = None,
    is_reauthentication: bool = False,
    code: int = 200,
) -> Response:
    """Render the sign-in page, with the reason why the last attempt failed.

    ``refused_provider`` has the reason and the name of the identity provider.
    """
    registered = next_registration_step(organization) if "registered" in request.args else None
    known_email = take_flash(None).get("email")
    form.email.data = form.email.data or known_email
    return organization_page(
        "account/sign_in.html",
        organization,
        form=form,
        code=code,
        branding=organization.settings["branding"],
        client=_client_words(pending) if pending else None,
        refused=refused,
        refused_passkey=refused_passkey,
        refused_provider=refused_provider,
        providers=list_offered_providers(organization),
        passkey=begin_passkey_sign_in(organization, browser_id())
        if is_passkey_sign_in_offered(organization)
        else None,
        is_reauthentication=is_reauthentication,
        registered=registered,
        registered_email=known_email,
        confirmed="confirmed" in request.args,
        reset=request.args.get("reset"),
        ended="ended" in request.args,
        unsaved="unsaved" in request.args,
        verifies_email=own_path(return_parameters().get("next"), "").startswith(
            f"/organizations/{organization.slug}/confirm-address/"
        ),
        can_register=organization.is_active and is_registration_open(organization.settings),
        wants_account=pending is not None and "create" in pending.sent.get("prompt", "").split(),
        password_enabled=organization.settings["authentication"]["password"]["enabled"],
        return_parameters=return_parameters(),
    )


def _home(organization: OrganizationSnapshot, has_permissions: bool) -> str:
    home = (
        f"/portal/{organization.slug}" if has_permissions else f"/organizations/{organization.slug}/account"
    )
    return own_path(return_parameters().get("next"), home)


def _client_words(pending: AuthorizationRequestRecord) -> dict[str, Any]:
    client = pending.client
    links = {name: client.document.get(name) for name in ("policy_uri", "tos_uri")}
    return {"name": client.name, "logo": logo_of(client), **links}
