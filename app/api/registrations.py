"""Accounts that wait for their address to be proven: list, show, let in, refuse."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.api.lists import listed
from app.api.representations import time
from app.operations.store.idempotency import IdempotentResult
from app.operations.users import registrations
from app.operations.users.registrations import RegistrationRecord
from app.web.bearer import Call, management
from app.web.idempotency import once
from app.web.json_api import envelope
from app.web.pagination import PARAMETERS


@api.get("/registrations")
@management(*PARAMETERS)
def list_registrations(call: Call) -> Response:
    """Who waits, the newest first."""
    return listed(call, "registrations", registrations.list_registrations, show=registration)


@api.get("/registrations/<registration_id>")
@management()
def get_registration(call: Call, registration_id: str) -> Response:
    """One that waits."""
    return envelope(registration(registrations.get_registration(call.actor, registration_id)))


@api.post("/registrations/<registration_id>/admit")
@management()
def admit_registration(call: Call, registration_id: str) -> Response:
    """The person has the account, with an address that nobody has proven."""

    def work() -> IdempotentResult:
        user = registrations.approve_registration(call.actor, registration_id)
        return IdempotentResult(
            200, {"id": registration_id, "user_id": user.public_id, "email": user.email}, {}, {}
        )

    return once(call.actor, {}, work)


@api.delete("/registrations/<registration_id>")
@management()
def refuse_registration(call: Call, registration_id: str) -> Response:
    """Nobody has that account."""
    return envelope(registration(registrations.reject_registration(call.actor, registration_id)))


def registration(view: RegistrationRecord) -> dict[str, Any]:
    """An account that somebody asked for, as the API shows it."""
    return {
        "id": view.public_id,
        "email": view.email,
        "name": view.name,
        "link_mailed": view.is_mailed,
        "address": view.address,
        "created_at": time(view.created_at),
        "expires_at": time(view.expires_at),
    }
