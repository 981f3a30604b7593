"""Activity: sign-ins, failures, changes of what protects the account, apps allowed and removed."""

from __future__ import annotations

from flask import request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.audit.audit_events import ACTIVITY_WINDOW, list_activity
from app.rules.audit.events import ACCOUNT_EVENTS, SUSPICIOUS_EVENTS
from app.rules.errors import InvalidInput
from app.web.pagination import page_meta, page_position

_LISTING = "account activity"


@account.get("/organizations/<organization>/account/activity")
@own_account
def activity_page(visit: Visit) -> Response:
    """What concerned the account, the newest first."""
    here = visit.organization.id
    sent = {"cursor": request.args["cursor"]} if request.args.get("cursor") else {}
    try:
        after = page_position(sent, here, _LISTING)
    except InvalidInput:
        after = None
    page = list_activity(visit.actor, after=after)
    cursor = page_meta(page, {}, here, _LISTING)["next_cursor"]
    url = visit.url("/activity")
    return visit.render(
        "account/activity.html",
        page=page,
        words=ACCOUNT_EVENTS,
        alarming=SUSPICIOUS_EVENTS,
        days=ACTIVITY_WINDOW.days,
        first_url=url if after else None,
        next_url=f"{url}?cursor={cursor}" if cursor else None,
    )
