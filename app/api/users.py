"""Users: list, create, show, change, delete; their sign-ins, their apps, and a link for a new password."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.api.lists import filters_of, listed
from app.operations.authorization.connected_apps import ConsentRecord
from app.operations.sign_in.sessions import SessionSummary
from app.operations.store.idempotency import IdempotentResult
from app.operations.users import deletion, user_changes, users
from app.operations.users import user_changes as changes
from app.operations.users import users as records
from app.operations.users.users import FILTERS, UserRecord
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS


def user(record: UserRecord) -> dict[str, Any]:
    """A user, with the names of their roles."""
    view = record.user
    return {
        "id": view.public_id,
        "organization_id": record.organization_slug,
        "email": view.email,
        "email_verified": view.email_verified,
        "name": view.name,
        "profile": dict(view.profile),
        "status": view.status,
        "roles": list(record.roles),
        "has_password": view.has_password,
        "second_factors": list(record.methods),
        "password_changed_at": representations.time(view.password_changed_at),
        "created_at": representations.time(view.created_at),
        "updated_at": representations.time(view.updated_at),
        "last_sign_in_at": representations.time(view.last_sign_in_at),
    }


def sign_in(entry: SessionSummary) -> dict[str, Any]:
    """A living sign-in of a browser."""
    return {
        "id": entry.public_id,
        "created_at": representations.time(entry.created_at),
        "last_seen_at": representations.time(entry.last_seen_at),
        "expires_at": representations.time(entry.expires_at),
        "address": entry.address,
        "user_agent": entry.user_agent,
    }


def connected_app(record: ConsentRecord) -> dict[str, Any]:
    """A client that may act for the user."""
    return {
        "id": record.public_id,
        "client_id": record.client_id,
        "client_name": record.client_name,
        "scopes": list(record.scopes),
        "created_at": representations.time(record.created_at),
        "updated_at": representations.time(record.updated_at),
        "expires_at": representations.time(record.expires_at),
        "last_used_at": representations.time(record.last_used_at),
    }


@api.get("/users")
@management(*PARAMETERS, "q", "sort", *FILTERS)
def list_users(call: Call) -> Response:
    """The users of the organization."""
    return listed(
        call,
        "users",
        users.list_users,
        show=user,
        query=call.parameters.get("q"),
        filters=filters_of(call, FILTERS),
        sort=call.parameters.get("sort", "email"),
    )


@api.post("/users")
@management()
def create_user(call: Call) -> Response:
    """A new user, without a password."""
    body = read_object()

    def work() -> IdempotentResult:
        record = changes.add_user(call.actor, body)
        return created(user(record), record.user.public_id, headers={"ETag": etag_of(record.user.version)})

    return once(call.actor, body, work)


@api.get("/users/<user_id>")
@management()
def get_user(call: Call, user_id: str) -> Response:
    """One user."""
    record = records.get_user_record(call.actor, user_id)
    return envelope(user(record), headers={"ETag": etag_of(record.user.version)})


@api.put("/users/<user_id>")
@management()
def update_user(call: Call, user_id: str) -> Response:
    """The fields sent are replaced; ``meta.changed`` lists those that differ now."""
    updated = changes.update_user(call.actor, user_id, read_object(), expected_version=expected_version())
    etag = {"ETag": etag_of(updated.record.user.version)}
    return envelope(user(updated.record), meta={"changed": updated.changed}, headers=etag)


@api.delete("/users/<user_id>")
@management()
def delete_user(call: Call, user_id: str) -> Response:
    """The user is gone; the answer counts what ended with them."""
    ended = deletion.delete_user(call.actor, user_id, expected_version=expected_version())
    counts = {
        "sessions": ended.sessions,
        "grants": ended.grants,
        "consents": ended.consents,
        "roles": ended.roles,
    }
    return envelope({"id": user_id, "deleted": True, "ended": counts})


@api.post("/users/<user_id>/reset")
@management()
def reset_user(call: Call, user_id: str) -> Response:
    """A link with which the user chooses a new password."""
    body: dict[str, Any] = {}

    def work() -> IdempotentResult:
        link = user_changes.issue_user_reset_link(call.actor, user_id)
        data = {"user_id": user_id, "expires_at": representations.time(link.expires_at)}
        if link.link is not None:
            data["link"] = link.link
        return IdempotentResult(200, data, {}, {})

    return once(call.actor, body, work)


@api.get("/users/<user_id>/sessions")
@management()
def list_user_sessions(call: Call, user_id: str) -> Response:
    """Where the user is signed in."""
    return envelope([sign_in(entry) for entry in user_changes.list_user_sessions(call.actor, user_id)])


@api.delete("/users/<user_id>/sessions")
@management()
def end_user_sessions(call: Call, user_id: str) -> Response:
    """The user is signed in nowhere any more."""
    return envelope({"user_id": user_id, "ended": user_changes.end_user_sessions(call.actor, user_id)})


@api.delete("/users/<user_id>/sessions/<session_id>")
@management()
def end_user_session(call: Call, user_id: str, session_id: str) -> Response:
    """The user is signed in there no more."""
    user_changes.end_user_session(call.actor, user_id, session_id)
    return envelope({"user_id": user_id, "ended": 1})


@api.get("/users/<user_id>/consents")
@management()
def list_user_consents(call: Call, user_id: str) -> Response:
    """The apps that may act for the user."""
    return envelope(
        [connected_app(record) for record in user_changes.list_user_consents(call.actor, user_id)]
    )
