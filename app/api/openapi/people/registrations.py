"""OpenAPI: accounts that people asked for, which wait for their address to be proven."""

from __future__ import annotations

from app.api.openapi.common import public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    closed,
    created,
    flag,
    listed,
    moment,
    nullable,
    operation,
    path_item,
    shown,
    text,
)

_TAG = "Users"

SCHEMAS: Schema = {
    "Registration": closed(
        {
            "id": public_id("reg"),
            "email": text(),
            "name": text(),
            "link_mailed": flag("A link went to the address; without a mail server nobody can prove it."),
            "address": nullable(text("The network address that it was asked for from.")),
            "created_at": moment(),
            "expires_at": moment("When it is forgotten."),
        }
    ),
}
PATHS: Schema = {
    "/registrations": path_item(
        (),
        get=operation(
            "listRegistrations",
            "List accounts that wait",
            tag=_TAG,
            scope="users:read",
            description="Where `authentication.registration.verify_email` is on, an account that somebody asked for "
            "stands once its address is proven by a mailed link, or once it is let in here. The newest first.",
            parameters=("Limit", "Cursor", "Acting"),
            answers=listed("A page.", "Registration"),
        ),
    ),
    "/registrations/{registrationId}": path_item(
        ("RegistrationId", "Acting"),
        get=operation(
            "getRegistration",
            "Show an account that waits",
            tag=_TAG,
            scope="users:read",
            answers=shown("What was asked for.", "Registration"),
        ),
        delete=operation(
            "refuseRegistration",
            "Refuse an account",
            tag=_TAG,
            scope="users:write",
            description="Its link is of use no more. Nobody is told.",
            answers=shown("What was asked for.", "Registration"),
        ),
    ),
    "/registrations/{registrationId}/admit": path_item(
        ("RegistrationId", "Acting"),
        post=operation(
            "admitRegistration",
            "Let somebody in",
            tag=_TAG,
            scope="users:write",
            description="The person signs in with the password that they chose. `email_verified` of the user stays "
            "false: it says what a mailed link proved. 409 when the address has an account by now. A body is not read.",
            parameters=("IdempotencyKey",),
            answers={
                "200": answer(
                    "The user that they are.",
                    created(closed({"id": public_id("reg"), "user_id": public_id("usr"), "email": text()})),
                )
            },
            extra=("409",),
        ),
    ),
}
