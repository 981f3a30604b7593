"""Users: the list, one user's page, what an administrator can do with an account, and waiting registrations."""

from __future__ import annotations

from uuid import UUID

from flask import redirect, request

from app.operations.clients.ownership import Owned, count_owned, may_transfer_ownership
from app.operations.directory.users import UserSnapshot
from app.operations.sign_in.actor_access import may_manage, require_may_manage
from app.operations.sign_in.identity_providers import find_provider_names
from app.operations.sign_in.linked_identities import list_user_identities, unlink_user_identity
from app.operations.store.rows import MAX_LIMIT, PageRequest
from app.operations.users import registrations as pending_registrations
from app.operations.users.deletion import delete_user
from app.operations.users.factor_resets import list_user_factors, reset_user_factors
from app.operations.users.groups import list_groups_of_user
from app.operations.users.invitations import list_invitations
from app.operations.users.password_resets import can_email_reset_links
from app.operations.users.provisioning import find_managing_provider
from app.operations.users.registrations import count_registrations, list_registrations
from app.operations.users.sign_up import next_registration_step
from app.operations.users.user_changes import (
    end_user_session,
    end_user_sessions,
    issue_user_reset_link,
    list_user_consents,
    list_user_sessions,
    update_user,
)
from app.operations.users.users import UserRecord, get_user_record, list_users
from app.portal.attributes import shown_attributes
from app.portal.context import Confirmation, PageResponse, PortalContext, Undo, portal_page, search_query
from app.rules.directory.attributes import attributes_of
from app.rules.directory.permissions import effective_roles
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import public_id
from app.rules.sign_in.browser_names import browser_name
from app.rules.users.profile import STATUSES
from app.web.forms import TypedConfirmationForm
from app.web.languages import counted, gettext, lazy_gettext, translate

_STATUSES = {
    "active": lazy_gettext("Active"),
    "disabled": lazy_gettext("Disabled"),
}


def identified_by(email_or_id: str) -> dict[str, str]:
    """Return the field of the operations for what was typed: an email address or ``usr_…``."""
    return {"user_id": email_or_id} if email_or_id.startswith("usr_") else {"email": email_or_id}


def describe_owned(owned: Owned) -> str:
    """Return what a user owns, such as ``2 clients, 1 API``, or nothing."""
    counts = {"client": owned.clients, "API": owned.resources}
    return ", ".join(counted(count, noun) for noun, count in counts.items() if count)


@portal_page("/users", "GET")
def users(context: PortalContext) -> PageResponse:
    """List the users by email; ``q`` searches, ``status``, ``role`` and ``identity_provider`` filter."""
    roles = effective_roles(context.organization.settings)
    query = search_query()
    providers = find_provider_names(context.organization.id)
    allowed = {"status": STATUSES, "role": tuple(roles), "identity_provider": tuple(providers)}
    requested = {name: request.args.get(name, "") for name in allowed}
    filters = {name: value for name, value in requested.items() if value in allowed[name]}
    page = list_users(context.actor, context.page_request(), query=query or None, filters=filters)
    return context.render(
        "portal/users/list.html",
        page=page,
        query=query,
        filters=filters,
        statuses=_STATUSES,
        roles=roles,
        providers=providers,
        is_filtered=bool(query or filters),
        waiting=count_registrations(context.actor),
        invitations=list_invitations(
            context.actor, context.organization.slug, PageRequest(MAX_LIMIT), of_members=True
        ).items
        if context.actor.has_permission("admins:read")
        else (),
    )


@portal_page("/users/<user_id>", "GET")
def user(context: PortalContext, user_id: str, error: Conflict | None = None) -> PageResponse:
    """Show a user's profile, roles, sessions and apps."""
    record = get_user_record(context.actor, user_id)
    sessions = list_user_sessions(context.actor, user_id)
    return context.render(
        "portal/users/user.html",
        user=record.user,
        user_url=context.url(f"/users/{record.user.public_id}"),
        roles=_role_names(context, record.roles),
        attributes=shown_attributes(attributes_of(context.organization.settings), dict(record.attributes)),
        has_attributes=bool(attributes_of(context.organization.settings)),
        groups=list_groups_of_user(context.actor, record.user.id),
        owned=count_owned(context.actor, record.user.id),
        may_transfer=may_transfer_ownership(context.actor),
        may_manage=may_manage(context.actor, record.user),
        sessions=[(session, translate(browser_name(session.user_agent))) for session in sessions],
        factors=list_user_factors(context.actor, user_id),
        identities=list_user_identities(context.actor, user_id),
        manager=managing_provider(context, find_managing_provider(context.organization.id, record.user.id)),
        apps=list_user_consents(context.actor, user_id)
        if context.actor.has_permission("consents:read")
        else None,
        emails_reset_link=can_email_reset_links(context.organization),
        error=error,
    )


@portal_page("/users/<user_id>/disable", "GET", "POST")
def disable_user(context: PortalContext, user_id: str) -> PageResponse:
    """Confirm, then disable the account and sign the user out everywhere."""
    user = _get_manageable(context, user_id).user
    impact = (
        gettext(
            "%(email)s can no longer sign in. %(sessions)s will end.",
            email=user.email,
            sessions=_count_sessions(context, user_id),
        ),
        _lost_apps(context, user_id),
        gettext(
            "Nothing is deleted. You can enable the user again, but they and their clients have to sign in again."
        ),
    )
    return context.confirm_change(
        Confirmation(
            gettext("Disable %(name)s?", name=user.name or user.email),
            gettext("Disable user"),
            _parents(user),
            impact,
        ),
        lambda: update_user(context.actor, user_id, {"status": "disabled"}),
        f"/users/{user_id}",
        "user-disabled",
        Undo(f"/users/{user_id}/enable", "users:write"),
    )


@portal_page("/users/<user_id>/enable", "POST")
def enable_user(context: PortalContext, user_id: str) -> PageResponse:
    """Let the user sign in again."""
    try:
        update_user(context.actor, user_id, {"status": "active"})
    except Conflict as error:
        return user(context, user_id, error)
    return context.done(f"/users/{user_id}", "user-enabled")


@portal_page("/users/<user_id>/sign-out", "GET", "POST")
def sign_out_user(context: PortalContext, user_id: str) -> PageResponse:
    """Confirm, then end all sessions of the user."""
    user = _get_manageable(context, user_id).user
    impact = (
        gettext(
            "%(sessions)s will end. Apps that support it are told.",
            sessions=_count_sessions(context, user_id),
        ),
        gettext("Apps with offline access keep it. Revoke their tokens to end it as well."),
    )
    title = gettext("Sign out %(name)s everywhere?", name=user.name or user.email)
    return context.confirm_change(
        Confirmation(title, gettext("Sign out everywhere"), _parents(user), impact),
        lambda: end_user_sessions(context.actor, user_id),
        f"/users/{user_id}",
        "user-signed-out",
    )


@portal_page("/users/<user_id>/sessions/<session_id>/end", "GET", "POST")
def end_one_user_session(context: PortalContext, user_id: str, session_id: str) -> PageResponse:
    """Confirm, then end one session of the user."""
    user = _get_manageable(context, user_id).user
    sessions = list_user_sessions(context.actor, user_id)
    found = next((each for each in sessions if each.public_id == session_id), None)
    if found is None and request.method == "GET":
        raise NotFound(lazy_gettext("This session has ended."))
    impact: tuple[str, ...] = ()
    if found is not None:
        impact = (
            (
                gettext(
                    "%(email)s is signed out of %(browser)s (%(address)s).",
                    email=user.email,
                    browser=translate(browser_name(found.user_agent)),
                    address=found.address or gettext("unknown IP address"),
                )
            ),
            gettext("%(sessions)s will stay.", sessions=counted(len(sessions) - 1, "other session")),
        )
    return context.confirm_change(
        Confirmation(gettext("End this session?"), gettext("End session"), _parents(user), impact),
        lambda: end_user_session(context.actor, user_id, session_id),
        f"/users/{user_id}",
        "session-ended",
    )


@portal_page("/users/<user_id>/reset", "GET", "POST")
def reset_user_password(context: PortalContext, user_id: str) -> PageResponse:
    """Create a password reset link, which the user's page shows once unless it was sent by email.

    One's own link requires a fresh sign-in, which leads back to the user's page.
    """
    found = _get_manageable(context, user_id).user
    if request.method != "POST":
        return redirect(context.url(f"/users/{user_id}"), 303)
    try:
        new = issue_user_reset_link(context.actor, user_id)
    except Conflict as error:
        return user(context, user_id, error)
    return context.done(
        f"/users/{user_id}", kind="reset", name=found.email, link=new.link, expires_at=new.expires_at
    )


@portal_page("/users/<user_id>/delete", "GET", "POST")
def delete_user_page(context: PortalContext, user_id: str) -> PageResponse:
    """Show the impact, and delete the user once the email is typed. Requires a fresh sign-in."""
    record = _get_manageable(context, user_id)
    user = record.user
    form = TypedConfirmationForm()
    if form.is_confirmed(user.email):
        with form.show_errors(Conflict):
            delete_user(context.actor, user_id)
            return context.done("/users", "user-deleted")
    roles = ", ".join(_role_names(context, record.roles))
    sessions = counted(len(list_user_sessions(context.actor, user_id)), "session")
    owned = describe_owned(count_owned(context.actor, user.id))
    impact = (
        gettext(
            "%(email)s can no longer sign in. %(sessions)s will end.", email=user.email, sessions=sessions
        ),
        gettext("All clients lose access to the account."),
        gettext("The user loses these roles: %(roles)s.", roles=roles) if roles else None,
        gettext("The name, email address, profile and password are erased."),
        gettext("What the user owns stays: %(owned)s.", owned=owned) if owned else None,
        gettext("Transfer it first, so that somebody can manage it.")
        if owned and may_transfer_ownership(context.actor)
        else None,
        gettext(
            "The audit log keeps the name and email address in its events, each for %(days)s days.",
            days=context.organization.settings["audit"]["retention_days"],
        ),
    )
    note = gettext(
        "You can't undo this. The email address can be used for a new account, but the user "
        "ID %(public_id)s is never reused.",
        public_id=user.public_id,
    )
    title = gettext("Delete %(name)s?", name=user.name or user.email)
    return context.confirm(form, Confirmation(title, gettext("Delete user"), _parents(user), impact, note))


@portal_page("/users/<user_id>/second-factors/reset", "GET", "POST")
def reset_second_factors(context: PortalContext, user_id: str) -> PageResponse:
    """Confirm and remove all second factors of the user. Requires a fresh sign-in."""
    record = _get_manageable(context, user_id)
    factors = list_user_factors(context.actor, user_id)
    methods = counted(len(factors.factors), "verification method")
    impact = (
        gettext(
            "%(methods)s and %(codes)s of %(email)s stop working.",
            methods=methods,
            codes=counted(factors.codes_left, "recovery code"),
            email=record.user.email,
        ),
        gettext(
            "The user signs in with only a password, or sets up two-step verification again if your settings require"
            " it."
        ),
        gettext("The user is signed out everywhere. Clients have to ask for access again."),
    )
    note = gettext("Verify the person's identity first. Anyone with their password will be able to sign in.")
    return context.confirm_change(
        Confirmation(
            gettext("Reset two-step verification?"),
            gettext("Reset two-step verification"),
            _parents(record.user),
            impact,
            note,
        ),
        lambda: reset_user_factors(context.actor, user_id),
        f"/users/{user_id}",
        "user-factors-reset",
    )


@portal_page("/users/<user_id>/linked-identities/<identity_id>/unlink", "GET", "POST")
def unlink_identity(context: PortalContext, user_id: str, identity_id: str) -> PageResponse:
    """Confirm and unlink an account at an identity provider. Requires a fresh sign-in."""
    user = _get_manageable(context, user_id).user
    identities = list_user_identities(context.actor, user_id)
    found = next((each for each in identities if each.public_id == identity_id), None)
    if found is None:
        raise NotFound(lazy_gettext("This account is no longer linked."))
    impact = (
        gettext(
            "%(account)s of %(provider)s no longer signs in %(email)s.",
            account=found.email or found.subject,
            provider=found.provider_name,
            email=user.email,
        ),
        gettext("The user is signed out everywhere. Clients have to ask for access again."),
    )
    note = gettext(
        "If the identity provider links or creates accounts by email, the next sign-in there may link it again."
    )
    return context.confirm_change(
        Confirmation(
            gettext("Unlink this account?"), gettext("Unlink account"), _parents(user), impact, note
        ),
        lambda: unlink_user_identity(context.actor, user_id, identity_id),
        f"/users/{user_id}",
        "identity-unlinked",
    )


@portal_page("/registrations", "GET")
def registrations(context: PortalContext, error: Conflict | None = None) -> PageResponse:
    """List the registrations that wait for verification or approval, newest first."""
    page = list_registrations(context.actor, context.page_request())
    return context.render(
        "portal/users/registrations.html",
        page=page,
        listing="/registrations",
        next_step=next_registration_step(context.organization),
        error=error,
    )


@portal_page("/registrations/<registration_id>/approve", "POST")
def approve_registration(context: PortalContext, registration_id: str) -> PageResponse:
    """Create the account without a verified email."""
    try:
        pending_registrations.approve_registration(context.actor, registration_id)
    except Conflict as error:
        return registrations(context, error)
    return context.done("/registrations", "registration-approved")


@portal_page("/registrations/<registration_id>/reject", "POST")
def reject_registration(context: PortalContext, registration_id: str) -> PageResponse:
    """Delete the registration."""
    pending_registrations.reject_registration(context.actor, registration_id)
    return context.done("/registrations", "registration-rejected")


def _get_manageable(context: PortalContext, user_id: str) -> UserRecord:
    """Return the user if the actor may manage them, before a page asks whether to."""
    record = get_user_record(context.actor, user_id)
    require_may_manage(context.actor, record.user)
    return record


def _count_sessions(context: PortalContext, user_id: str) -> str:
    return counted(len(list_user_sessions(context.actor, user_id)), "session")


def _lost_apps(context: PortalContext, user_id: str) -> str:
    if not context.actor.has_permission("consents:read"):
        return gettext("All clients lose access to the account.")
    apps = counted(len(list_user_consents(context.actor, user_id)), "connected app")
    return gettext("All clients lose access to the account: %(apps)s.", apps=apps)


def _parents(user: UserSnapshot) -> tuple[tuple[str, str], ...]:
    return (gettext("Users"), "/users"), (user.email, f"/users/{user.public_id}")


def managing_provider(context: PortalContext, provider_id: UUID | None) -> tuple[str, str] | None:
    """Return the public id and the name of the identity provider that manages a user or group, if it exists."""
    if provider_id is None:
        return None
    found = public_id("idp", provider_id)
    name = find_provider_names(context.organization.id).get(found)
    return None if name is None else (found, name)


def _role_names(context: PortalContext, roles: tuple[str, ...]) -> list[str]:
    known = effective_roles(context.organization.settings)
    return [translate(known[role].name) if role in known else role for role in roles]
