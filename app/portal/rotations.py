"""A rotation under way: what its use says, and the buttons that end, extend or call it off."""

from __future__ import annotations

from flask import redirect, request

from app.operations.clients.previews import get_client_credentials
from app.operations.clients.rotations import cancel_rotation, get_rotation, update_rotation
from app.portal.blueprint import portal
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import InvalidInput
from app.web.forms import field_errors, is_ticked, text

# What the page offers as more time, in seconds.
_MORE = (3_600, 86_400, 7 * 86_400, 30 * 86_400)
_PAGE = "/portal/<organization>/clients/<client_id>/credentials/rotation"


@portal.get(_PAGE)
@visiting
def rotation(visit: Visit, client_id: str) -> Answer:
    """The new secret, the old ones, and whether these can end."""
    return _page(visit, client_id)


@portal.post(f"{_PAGE}/steer")
@visiting
def steer(visit: Visit, client_id: str) -> Answer:
    """The old secrets end now (0 seconds) or so many seconds from now."""
    seconds = text("expires_in_seconds")
    order = {
        "expires_in_seconds": int(seconds) if seconds.isascii() and seconds.isdigit() else seconds,
        "revoke_tokens": is_ticked("revoke_tokens"),
    }
    try:
        steered = update_rotation(visit.actor, client_id, order)
    except InvalidInput as refusal:
        return _page(visit, client_id, errors=field_errors(refusal))
    if steered.is_under_way:
        return visit.done(f"/clients/{client_id}/credentials/rotation", "rotation-moved")
    return visit.done(f"/clients/{client_id}/credentials", "rotation-finished")


@portal.post(f"{_PAGE}/cancel")
@visiting
def call_off(visit: Visit, client_id: str) -> Answer:
    """The secrets that were to end keep working; the new one goes if that is ticked."""
    cancel_rotation(visit.actor, client_id, revoke_new=is_ticked("revoke_new"))
    return visit.done(f"/clients/{client_id}/credentials", "rotation-cancelled")


def _page(visit: Visit, client_id: str, *, errors: dict[str, str] | None = None) -> Answer:
    found = get_rotation(visit.actor, client_id)
    ledger = get_client_credentials(visit.actor, client_id)
    client_url = visit.url(f"/clients/{client_id}")
    if not found.is_under_way:
        return redirect(f"{client_url}/credentials", 303)
    return visit.render(
        "portal/clients/rotation.html",
        code=400 if errors else 200,
        client=ledger.client,
        client_url=client_url,
        rotation=found,
        may_change=ledger.may_change,
        takes_tokens=is_ticked("revoke_tokens")
        if request.method == "POST"
        else any(old.takes_tokens for old in found.old),
        more=_MORE,
        errors=errors or {},
    )
