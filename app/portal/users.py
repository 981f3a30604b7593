"""Users: the list, one person's page, and what an administrator may do with an account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import request

from app.operations.directory.users import UserSnapshot
from app.operations.users.deletion import delete_user
from app.operations.users.factor_resets import list_user_factors, reset_user_factors
from app.operations.users.password_resets import can_email_reset_links
from app.operations.users.registrations import count_registrations
from app.operations.users.user_changes import (
    end_user_session,
    end_user_sessions,
    issue_user_reset_link,
    list_user_consents,
    list_user_sessions,
    update_user,
)
from app.operations.users.users import FILTERS, get_user_record, list_users
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.directory.permissions import effective_roles
from app.rules.errors import Conflict
from app.rules.sign_in.browser_names import browser_name
from app.rules.users.profile import STATUSES
from app.web.forms import text


@portal.get("/portal/<organization>/users")
@visiting
def users(visit: Visit) -> Answer:
    """The people of the organization, by address; ``q`` searches, ``status`` and ``role`` narrow."""
    roles = effective_roles(visit.organization.settings)
    query = request.args.get("q", "").strip()[:100]
    allowed = {"status": STATUSES, "role": tuple(roles)}
    asked = {name: request.args.get(name, "") for name in FILTERS}
    filters = {name: value for name, value in asked.items() if value in allowed[name]}
    page = list_users(
        visit.actor,
        after=position(visit.organization.id, "portal users"),
        query=query or None,
        filters=filters,
    )
    return visit.render(
        "portal/users/list.html",
        page=page,
        query=query,
        filters=filters,
        statuses=STATUSES,
        roles=roles,
        is_filtered=bool(query or filters),
        waiting=count_registrations(visit.actor),
        pager=pages_of(page, visit.organization.id, "portal users"),
    )


@portal.get("/portal/<organization>/users/<user_id>")
@visiting
def user(visit: Visit, user_id: str) -> Answer:
    """One person: profile, roles, sign-ins, apps."""
    return _page(visit, user_id)


@portal.post("/portal/<organization>/users/<user_id>/disable")
@visiting
def user_disable(visit: Visit, user_id: str) -> Answer:
    """They can no longer sign in, and what was signed in is signed out."""
    return _changed(
        visit, user_id, lambda: update_user(visit.actor, user_id, {"status": "disabled"}), "user-disabled"
    )


@portal.post("/portal/<organization>/users/<user_id>/enable")
@visiting
def user_enable(visit: Visit, user_id: str) -> Answer:
    """They may sign in again."""
    return _changed(
        visit, user_id, lambda: update_user(visit.actor, user_id, {"status": "active"}), "user-enabled"
    )


@portal.post("/portal/<organization>/users/<user_id>/sign-out")
@visiting
def user_sign_out(visit: Visit, user_id: str) -> Answer:
    """They are signed in nowhere any more."""
    return _changed(visit, user_id, lambda: end_user_sessions(visit.actor, user_id), "user-signed-out")


@portal.post("/portal/<organization>/users/<user_id>/sessions/<session_id>/end")
@visiting
def user_session_end(visit: Visit, user_id: str, session_id: str) -> Answer:
    """They are signed in there no more."""
    return _changed(
        visit, user_id, lambda: end_user_session(visit.actor, user_id, session_id), "session-ended"
    )


@portal.post("/portal/<organization>/users/<user_id>/reset")
@visiting
def user_reset(visit: Visit, user_id: str) -> Answer:
    """The link for a new password, in the answer to the form and nowhere else."""
    try:
        new = issue_user_reset_link(visit.actor, user_id)
    except Conflict as refusal:
        return _page(visit, user_id, code=409, errors={"": refusal.description})
    found = get_user_record(visit.actor, user_id).user
    return visit.render("portal/users/reset.html", user=found, user_url=_url(visit, found), new=new)


@portal.route("/portal/<organization>/users/<user_id>/delete", methods=["GET", "POST"])
@visiting
def user_delete(visit: Visit, user_id: str) -> Answer:
    """What will stop working; afterwards the person is gone. Asks for a fresh sign-in."""
    visit.actor.require("users:write")
    record = get_user_record(visit.actor, user_id)
    errors: dict[str, str] = {}
    if request.method == "POST":
        if text("email") != record.user.email:
            errors["email"] = "This is not the user's address. Type it as it stands above."
        else:
            try:
                delete_user(visit.actor, user_id)
            except Conflict as refusal:
                errors[""] = refusal.description
            else:
                return visit.done("/users", "user-deleted")
    return visit.render(
        "portal/users/delete.html",
        code=_code(errors),
        user=record.user,
        user_url=_url(visit, record.user),
        sessions=list_user_sessions(visit.actor, user_id),
        roles=_role_names(visit, record.roles),
        errors=errors,
    )


@portal.route("/portal/<organization>/users/<user_id>/second-factors/reset", methods=["GET", "POST"])
@visiting
def user_factors_reset(visit: Visit, user_id: str) -> Answer:
    """What it means to take away all second factors, and the button for it. Asks for a fresh sign-in."""
    visit.actor.require("users:write")
    record = get_user_record(visit.actor, user_id)
    if request.method == "POST":
        reset_user_factors(visit.actor, user_id)
        return visit.done(f"/users/{user_id}", "user-factors-reset")
    return visit.render(
        "portal/users/factors_reset.html",
        user=record.user,
        user_url=_url(visit, record.user),
        found=list_user_factors(visit.actor, user_id),
    )


def _changed(visit: Visit, user_id: str, act: Callable[[], Any], done: str) -> Answer:
    try:
        act()
    except Conflict as refusal:
        return _page(visit, user_id, code=409, errors={"": refusal.description})
    return visit.done(f"/users/{user_id}", done)


def _page(visit: Visit, user_id: str, *, code: int = 200, errors: dict[str, str] | None = None) -> Answer:
    record = get_user_record(visit.actor, user_id)
    sessions = list_user_sessions(visit.actor, user_id)
    return visit.render(
        "portal/users/user.html",
        code=code,
        user=record.user,
        user_url=_url(visit, record.user),
        roles=_role_names(visit, record.roles),
        sessions=[(entry, browser_name(entry.user_agent)) for entry in sessions],
        found=list_user_factors(visit.actor, user_id),
        apps=list_user_consents(visit.actor, user_id)
        if visit.actor.has_permission("consents:read")
        else None,
        mails_reset=can_email_reset_links(visit.organization),
        errors=errors or {},
    )


def _role_names(visit: Visit, roles: tuple[str, ...]) -> list[str]:
    known = effective_roles(visit.organization.settings)
    return [known[role].name if role in known else role for role in roles]


def _url(visit: Visit, found: UserSnapshot) -> str:
    return visit.url(f"/users/{found.public_id}")


def _code(errors: dict[str, str]) -> int:
    if not errors:
        return 200
    return 409 if "" in errors else 400
