"""OpenAPI: second factors of users."""

from __future__ import annotations

from app.api.openapi.common import public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    count,
    moment,
    nullable,
    operation,
    path_item,
    ref,
    success,
    text,
)
from app.rules.sign_in.second_factors import PASSKEY, TOTP

_METHOD = text(enum=[TOTP, PASSKEY])
_FACTORS = closed(
    {
        "user_id": public_id("usr"),
        "factors": array(ref("SecondFactor")),
        "recovery_codes_left": count(),
    }
)
_RESET = closed(
    {
        "user_id": public_id("usr"),
        "removed": array(_METHOD, "The methods that were taken away."),
        "ended": closed({"sessions": count(), "grants": count()}),
    }
)

SCHEMAS: Schema = {
    "SecondFactor": closed(
        {
            "method": _METHOD,
            "name": nullable(text("What the person calls a passkey.")),
            "created_at": moment(),
            "last_used_at": nullable(moment()),
        }
    ),
}

PATHS: Schema = {
    "/users/{userId}/second-factors": path_item(
        ("UserId", "Acting"),
        get=operation(
            "listUserSecondFactors",
            "List a user's second factors",
            tag="Users",
            scope="users:read",
            description="What the user proves a sign-in with beside the password; nothing that would prove one.",
            answers={"200": answer("The factors, and how many recovery codes are left.", success(_FACTORS))},
        ),
        delete=operation(
            "resetUserSecondFactors",
            "Take away a user's second factors",
            tag="Users",
            scope="users:write",
            description="For who lost theirs: the password alone signs in, or another factor is set up where the "
            "policy demands one. Recovery codes are void, sign-ins and what apps hold have ended, and the user is told "
            "by mail. A person must have signed in within `reauthentication_seconds`, with their own second factor if "
            "they have one: else 401 `insufficient_user_authentication`. Repeating is harmless.",
            answers={"200": answer("What was taken away, and what ended with it.", success(_RESET))},
        ),
    ),
}
