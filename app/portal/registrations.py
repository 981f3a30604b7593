"""Accounts that people asked for: let in, or refused."""

from __future__ import annotations

from app.operations.users.registrations import approve_registration, list_registrations, reject_registration
from app.operations.users.sign_up import next_registration_step
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict

_LIST = "portal registrations"


@portal.get("/portal/<organization>/registrations")
@visiting
def registrations(visit: Visit) -> Answer:
    """Who waits, the newest first."""
    return _page(visit)


@portal.post("/portal/<organization>/registrations/<registration_id>/admit")
@visiting
def registration_admit(visit: Visit, registration_id: str) -> Answer:
    """They have the account."""
    try:
        approve_registration(visit.actor, registration_id)
    except Conflict as refusal:
        return _page(visit, refusal)
    return visit.done("/registrations", "registration-admitted")


@portal.post("/portal/<organization>/registrations/<registration_id>/refuse")
@visiting
def registration_refuse(visit: Visit, registration_id: str) -> Answer:
    """Nobody has that account."""
    reject_registration(visit.actor, registration_id)
    return visit.done("/registrations", "registration-refused")


def _page(visit: Visit, refusal: Conflict | None = None) -> Answer:
    here = visit.organization.id
    page = list_registrations(visit.actor, after=position(here, _LIST))
    return visit.render(
        "portal/users/registrations.html",
        code=refusal.status if refusal else 200,
        page=page,
        follows=next_registration_step(visit.organization),
        errors={"": refusal.description} if refusal else {},
        pager=pages_of(page, here, _LIST),
    )
