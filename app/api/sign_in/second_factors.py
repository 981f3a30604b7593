"""Second factors of a user: list them, and reset them for a user who lost theirs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Endpoints, Shown
from app.api.representations import Count, Representation, Source, UserId
from app.operations.users.factor_resets import list_user_factors, reset_user_factors
from app.rules.shapes import OneOf, described
from app.rules.sign_in.second_factors import PASSKEY, TOTP
from app.web.bearer import ApiContext

endpoints = Endpoints("Users", "users")
_Method = Annotated[str, OneOf((TOTP, PASSKEY))]


class SecondFactor(Representation):
    """A second factor, without its secret."""

    method: Annotated[_Method, described("`totp` is an authenticator app.")]
    name: Annotated[
        str | None, Source(lambda record: record.name or None), described("The user's name for a passkey.")
    ]
    created_at: Annotated[datetime, described("When the user set it up.")]
    last_used_at: Annotated[datetime | None, described("When it was last used. Null if it never was.")]


class SecondFactors(Representation):
    """The second factors of a user."""

    user_id: UserId
    factors: Annotated[
        list[SecondFactor], described("The factors that the user set up. Empty without a second factor.")
    ]
    recovery_codes_left: Annotated[
        Count, Source("codes_left"), described("The number of unused recovery codes.")
    ]


class RevokedWithFactors(Representation):
    """Counts of the sessions and grants that a reset revoked."""

    sessions: Annotated[Count, described("Sessions that ended.")]
    grants: Annotated[Count, described("Grants that were revoked.")]


class ResetSecondFactors(Representation):
    """Second factors that were removed."""

    user_id: UserId
    removed: Annotated[list[_Method], described("The methods that were removed.")]
    revoked: RevokedWithFactors


@endpoints.get("/users/<user_id>/second-factors", returns=SecondFactors)
def list_user_second_factors(context: ApiContext, user_id: str) -> object:
    """List a user's second factors."""
    return Shown(list_user_factors(context.actor, user_id), {"user_id": user_id})


@endpoints.delete("/users/<user_id>/second-factors", returns=ResetSecondFactors)
def reset_user_second_factors(context: ApiContext, user_id: str) -> object:
    """Reset a user's second factors.

    For a user who lost them. The password is then enough to sign in, unless the policy requires the user to set up
    another factor. Recovery codes become invalid, sessions end, grants are revoked, and the user is notified by email.
    The caller must have signed in within `reauthentication_seconds`, with their own second factor if they have one:
    otherwise 401 `insufficient_user_authentication`.
    """
    reset = reset_user_factors(context.actor, user_id)
    revoked = RevokedWithFactors.to_json(reset)
    return {"user_id": user_id, "removed": list(reset.methods), "revoked": revoked}
