"""Rotation of a client's secret: begun, followed, steered and called off."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.api.credentials import made
from app.operations.clients import credentials, rotations
from app.operations.clients.rotations import Rotation, get_rotation
from app.operations.store.idempotency import IdempotentResult
from app.web.bearer import Call, management
from app.web.idempotency import once
from app.web.json_api import envelope, read_object
from app.web.parameters import flag


def rotation(record: Rotation, client_id: str) -> dict[str, Any]:
    """What a rotation has come to."""
    return {
        "client_id": client_id,
        "under_way": record.is_under_way,
        "started_at": representations.time(record.started_at),
        "ends_at": representations.time(record.ends_at),
        "safe_to_end": record.is_safe,
        "verdict": record.verdict,
        "new": None if record.new is None else representations.credential(record.new, client_id),
        "old": [representations.credential(old, client_id) for old in record.old],
    }


@api.get("/clients/<client_id>/credentials/rotation")
@management()
def read_rotation(call: Call, client_id: str) -> Response:
    """The new secret, the old ones, and whether these can end."""
    return envelope(rotation(get_rotation(call.actor, client_id), client_id))


@api.post("/clients/<client_id>/credentials/rotation")
@management()
def rotate_credential(call: Call, client_id: str) -> Response:
    """A new secret, and an end for those before it."""
    body = read_object(optional=True)

    def work() -> IdempotentResult:
        return made(credentials.rotate_credential(call.actor, client_id, body), client_id)

    return once(call.actor, body, work)


@api.put("/clients/<client_id>/credentials/rotation")
@management()
def steer_rotation(call: Call, client_id: str) -> Response:
    """The old secrets end later, sooner or now, with what they minted or without."""
    return envelope(rotation(rotations.update_rotation(call.actor, client_id, read_object()), client_id))


@api.delete("/clients/<client_id>/credentials/rotation")
@management("revoke_new")
def cancel_rotation(call: Call, client_id: str) -> Response:
    """The secrets that were about to end keep working; the answer is the ledger of live ones."""
    kept = rotations.cancel_rotation(call.actor, client_id, revoke_new=flag(call.parameters, "revoke_new"))
    return envelope([representations.credential(record, client_id) for record in kept])
