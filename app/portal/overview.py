"""Overview: an organization's first page in the portal."""

from __future__ import annotations

from app.operations.authorization.approval_requests import count_open_requests
from app.operations.organizations.overview import MAX_COUNT, get_overview
from app.operations.users.registrations import count_registrations
from app.portal.blueprint import portal
from app.portal.visit import Answer, Visit, visiting
from app.portal.words import HAPPENINGS


@portal.get("/portal/<organization>")
@visiting
def overview(visit: Visit) -> Answer:
    """Figures, what needs attention, what happened; a checklist while little stands."""
    figures = get_overview(visit.actor)
    has_colleague = figures.administrators > 1 or figures.has_invited
    return visit.render(
        "portal/overview.html",
        figures=figures,
        ceiling=MAX_COUNT,
        requests=count_open_requests(visit.actor),
        registrations=count_registrations(visit.actor),
        happening_words=HAPPENINGS,
        has_colleague=has_colleague,
        is_new=not (figures.clients and figures.tokens_last_day and has_colleague),
    )
