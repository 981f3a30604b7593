"""OpenAPI: users, their sign-ins and their apps."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    changed,
    closed,
    count,
    created,
    flag,
    listed,
    made,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    request_object,
    shown,
    success,
    text,
)
from app.operations.users.users import SORTS
from app.rules.sign_in.second_factors import PASSKEY, TOTP
from app.rules.users.profile import ADDRESS_PARTS, CHECKS, MAX_NAME_LENGTH, STATUSES

_TAG = "Users"
_STATUS = text(enum=list(STATUSES))
_EMAIL = text("What they sign in with.", minLength=3, maxLength=320)
_NAME = text(maxLength=MAX_NAME_LENGTH)
_ADDRESS: Schema = {
    "type": "object",
    "properties": {part: nullable(text()) for part in ADDRESS_PARTS},
    "additionalProperties": False,
}
_PROFILE: Schema = {
    "type": "object",
    "description": "Standard claims beside name and e-mail (OpenID Connect Core 5.1), replaced whole; null is none.",
    "properties": {name: nullable(text()) for name in CHECKS} | {"address": nullable(_ADDRESS)},
    "additionalProperties": False,
}

SCHEMAS: Schema = {
    "UserProfile": _PROFILE,
    "User": closed(
        {
            "id": public_id("usr")
            | {"description": "Never given to anybody else, after a deletion neither."},
            "organization_id": SLUG,
            "email": text(),
            "email_verified": flag(),
            "name": text(),
            "profile": ref("UserProfile"),
            "status": _STATUS,
            "roles": array(text(), "See `/organizations/{id}/admins`."),
            "has_password": flag(),
            "second_factors": array(text(enum=[TOTP, PASSKEY]), "The methods that are set up."),
            "password_changed_at": nullable(moment()),
            "created_at": moment(),
            "updated_at": moment(),
            "last_sign_in_at": nullable(moment()),
        }
    ),
    "NewUser": request_object(
        {"email": _EMAIL, "name": nullable(_NAME), "profile": nullable(ref("UserProfile"))},
        required=["email"],
    ),
    "UserChange": request_object(
        {
            "email": _EMAIL | {"description": "Another one is not verified."},
            "name": nullable(_NAME),
            "profile": nullable(ref("UserProfile")),
            "status": nullable(_STATUS | {"description": "`disabled` ends sign-ins and grants at once."}),
        }
    ),
    "UserSession": closed(
        {
            "id": public_id("ses"),
            "created_at": moment(),
            "last_seen_at": moment("Sampled, at most once a minute."),
            "expires_at": moment(),
            "address": nullable(text()),
            "user_agent": text(),
        }
    ),
    "UserConsent": closed(
        {
            "id": public_id("con"),
            "client_id": CLIENT_ID,
            "client_name": text(),
            "scopes": array(text()),
            "created_at": moment(),
            "updated_at": moment(),
            "expires_at": nullable(moment()),
            "last_used_at": nullable(moment()),
        }
    ),
}
_DELETED = closed(
    {
        "id": public_id("usr"),
        "deleted": {"const": True},
        "ended": closed(dict.fromkeys(("sessions", "grants", "consents", "roles"), count())),
    }
)
_RESET = closed(
    {
        "user_id": public_id("usr"),
        "link": text("Its holder chooses the password; shown this once.", format="uri"),
        "expires_at": moment(),
    },
    optional=("link",),
)
_ENDED = closed({"user_id": public_id("usr"), "ended": count("How many sign-ins ended.")})

PATHS: Schema = {
    "/users": path_item(
        ("Acting",),
        get=operation(
            "listUsers",
            "List users",
            tag=_TAG,
            scope="users:read",
            parameters=("Limit", "Cursor"),
            query=(
                query_parameter(
                    "q", text(minLength=1, maxLength=1000), "A part of an address or a name, or a whole id."
                ),
                query_parameter("status", _STATUS, "Those of one status."),
                query_parameter("role", text(minLength=1, maxLength=64), "Those who hold a role."),
                query_parameter(
                    "sort", text(enum=list(SORTS), default="email"), "Order; `-` turns it round."
                ),
            ),
            answers=listed("A page of users.", "User"),
        ),
        post=operation(
            "createUser",
            "Create a user",
            tag=_TAG,
            scope="users:write",
            description="Nobody sets a password for somebody else: a reset link lets the user choose one.",
            parameters=("IdempotencyKey",),
            body=ref("NewUser"),
            answers=made("The new user.", "User"),
        ),
    ),
    "/users/{userId}": path_item(
        ("UserId", "Acting"),
        get=operation(
            "getUser",
            "Show a user",
            tag=_TAG,
            scope="users:read",
            answers=shown("The user.", "User", etag=True),
        ),
        put=operation(
            "updateUser",
            "Update a user",
            tag=_TAG,
            scope="users:write",
            description="Who holds a role with more permissions than the caller is out of reach: 403. The last "
            "administrator stays active: 409 `last_administrator`.",
            parameters=("IfMatch",),
            body=ref("UserChange"),
            answers=changed("The user.", "User"),
            extra=("409",),
        ),
        delete=operation(
            "deleteUser",
            "Delete a user",
            tag=_TAG,
            scope="users:write",
            description="Sign-ins, grants, consents and roles end at once and personal data is erased. Asks a person "
            "for a recent sign-in. The last administrator stays: 409 `last_administrator`.",
            parameters=("IfMatch",),
            answers={"200": answer("What ended with the user.", success(_DELETED))},
            extra=("409",),
        ),
    ),
    "/users/{userId}/reset": path_item(
        ("UserId", "Acting"),
        post=operation(
            "resetUser",
            "Make a password reset link",
            tag=_TAG,
            scope="users:write",
            description="Of use once; the one before is dead. The password stays until the link is used. It goes to "
            "the user's mailbox alone, and the answer has no `link`; without a mail server, or with "
            "`authentication.recovery.password_reset` off, the answer holds it. A body is not read.",
            parameters=("IdempotencyKey",),
            answers={"200": answer("The link, to hand to the user.", created(_RESET))},
        ),
    ),
    "/users/{userId}/sessions": path_item(
        ("UserId", "Acting"),
        get=operation(
            "listUserSessions",
            "List a user's sign-ins",
            tag=_TAG,
            scope="users:read",
            answers={"200": answer("The living ones, by last use.", success(array(ref("UserSession"))))},
        ),
        delete=operation(
            "endUserSessions",
            "End a user's sign-ins",
            tag=_TAG,
            scope="users:write",
            description="What apps hold with `offline_access` stays; disabling the user ends that too.",
            answers={"200": answer("How many ended.", success(_ENDED))},
        ),
    ),
    "/users/{userId}/sessions/{sessionId}": path_item(
        ("UserId", "SessionId", "Acting"),
        delete=operation(
            "endUserSession",
            "End one sign-in of a user",
            tag=_TAG,
            scope="users:write",
            description="What apps hold with `offline_access` stays.",
            answers={"200": answer("It ended.", success(_ENDED))},
        ),
    ),
    "/users/{userId}/consents": path_item(
        ("UserId", "Acting"),
        get=operation(
            "listUserConsents",
            "List a user's apps",
            tag=_TAG,
            scope="consents:read",
            answers={
                "200": answer(
                    "Those that may act for the user.",
                    success(array(ref("UserConsent"))),
                )
            },
        ),
    ),
}
