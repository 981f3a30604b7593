"""Second factors of a user: what there is, and taking all of it away for who lost it."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.operations.users.factor_resets import FactorRecord, list_user_factors, reset_user_factors
from app.web.bearer import Call, management
from app.web.json_api import envelope


def second_factor(record: FactorRecord) -> dict[str, Any]:
    """A second factor, without anything that proves it."""
    return {
        "method": record.method,
        "name": record.name or None,
        "created_at": representations.time(record.created_at),
        "last_used_at": representations.time(record.last_used_at),
    }


@api.get("/users/<user_id>/second-factors")
@management()
def list_user_second_factors(call: Call, user_id: str) -> Response:
    """What the user proves a sign-in with beside the password."""
    found = list_user_factors(call.actor, user_id)
    factors = [second_factor(record) for record in found.factors]
    return envelope({"user_id": user_id, "factors": factors, "recovery_codes_left": found.codes_left})


@api.delete("/users/<user_id>/second-factors")
@management()
def reset_user_second_factors(call: Call, user_id: str) -> Response:
    """The user has no second factor any more; the answer counts what ended with it."""
    reset = reset_user_factors(call.actor, user_id)
    counts = {"sessions": reset.sessions, "grants": reset.grants}
    return envelope({"user_id": user_id, "removed": list(reset.methods), "ended": counts})
