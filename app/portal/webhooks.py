"""Webhooks: the list, one with what it was told, its form, its secret, and one delivery."""

from __future__ import annotations

import json
from typing import Any

from flask import request
from werkzeug.wrappers import Response as BaseResponse

from app.operations.audit.webhook_deliveries import get_delivery, list_deliveries, redeliver, send_test
from app.operations.audit.webhooks import (
    WebhookRecord,
    create_webhook,
    delete_webhook,
    get_webhook,
    list_webhooks,
    require_fresh_webhook_permissions,
    require_webhook_permissions,
    rotate_webhook_secret,
    update_webhook,
)
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.portal.words import WEBHOOK_FAULTS, WEBHOOK_GROUPS
from app.rules.audit.events import ALL_EVENTS, EVENT_TYPES, GROUPS
from app.rules.errors import Conflict, DomainError, InvalidInput, PreconditionFailed, TooManyRequests
from app.web.forms import field_errors, is_ticked, lines, text, ticked, version_read

_LIST = "portal webhooks"
_NEW: dict[str, Any] = {"url": "", "description": "", "event_types": (), "status": "enabled"}


@portal.get("/portal/<organization>/webhooks")
@visiting
def webhooks(visit: Visit) -> Answer:
    """The webhooks, the newest first."""
    here = visit.organization.id
    page = list_webhooks(visit.actor, after=position(here, _LIST))
    return visit.render(
        "portal/webhooks/list.html", page=page, faults=WEBHOOK_FAULTS, pager=pages_of(page, here, _LIST)
    )


@portal.route("/portal/<organization>/webhooks/new", methods=["GET", "POST"])
@visiting
def webhook_new(visit: Visit) -> Answer:
    """The form; posted, the signing secret is on the page that answers, and in no address."""
    # Asked before anything is typed.
    require_fresh_webhook_permissions(visit.actor)
    if request.method == "GET":
        return _form(visit, None, _NEW, {})
    sent = _sent()
    del sent["status"]
    try:
        made = create_webhook(visit.actor, sent)
    except (InvalidInput, Conflict) as refusal:
        return _form(visit, None, {**_NEW, **sent}, field_errors(refusal))
    return visit.render("portal/webhooks/secret.html", webhook=made.record, secret=made.secret, is_new=True)


@portal.get("/portal/<organization>/webhooks/<webhook_id>")
@visiting
def webhook_page(visit: Visit, webhook_id: str) -> Answer:
    """One webhook, and what it was told."""
    return _page(visit, webhook_id, {})


@portal.route("/portal/<organization>/webhooks/<webhook_id>/edit", methods=["GET", "POST"])
@visiting
def webhook_edit(visit: Visit, webhook_id: str) -> Answer:
    """Its form."""
    require_webhook_permissions(visit.actor)
    found = get_webhook(visit.actor, webhook_id)
    if request.method == "GET":
        return _form(visit, found, {name: getattr(found, name) for name in _NEW}, {})
    sent = _sent()
    try:
        _, changed = update_webhook(visit.actor, webhook_id, sent, expected_version=version_read())
    except PreconditionFailed:
        errors = {
            "": "Somebody changed this webhook since you opened the page. Check the values and save again."
        }
        return _form(visit, found, sent, errors, code=412)
    except (InvalidInput, Conflict) as refusal:
        return _form(visit, found, sent, field_errors(refusal))
    return visit.done(f"/webhooks/{webhook_id}", "saved" if changed else "unchanged")


@portal.route("/portal/<organization>/webhooks/<webhook_id>/secret", methods=["GET", "POST"])
@visiting
def webhook_secret(visit: Visit, webhook_id: str) -> Answer:
    """What a new secret means; posted, it is on the page that answers."""
    require_fresh_webhook_permissions(visit.actor)
    found = get_webhook(visit.actor, webhook_id)
    if request.method == "GET":
        return visit.render("portal/webhooks/rotate.html", webhook=found, faults=WEBHOOK_FAULTS)
    made = rotate_webhook_secret(
        visit.actor, webhook_id, {"overlap_seconds": 0} if is_ticked("at_once") else {}
    )
    return visit.render("portal/webhooks/secret.html", webhook=made.record, secret=made.secret, is_new=False)


@portal.post("/portal/<organization>/webhooks/<webhook_id>/test")
@visiting
def webhook_test(visit: Visit, webhook_id: str) -> Answer:
    """A test event is on its way."""
    try:
        made = send_test(visit.actor, webhook_id)
    except (Conflict, TooManyRequests) as refusal:
        return _page(visit, webhook_id, {"": refusal.description}, refusal)
    return visit.done(f"/webhooks/{webhook_id}/deliveries/{made.public_id}", "webhook-told")


@portal.route("/portal/<organization>/webhooks/<webhook_id>/delete", methods=["GET", "POST"])
@visiting
def webhook_delete(visit: Visit, webhook_id: str) -> Answer:
    """What will stop; afterwards nothing is told there any more."""
    found = get_webhook(visit.actor, webhook_id)
    visit.actor.require("webhooks:write")
    if request.method == "POST":
        delete_webhook(visit.actor, webhook_id)
        return visit.done("/webhooks", "webhook-deleted")
    return visit.render("portal/webhooks/delete.html", webhook=found)


@portal.get("/portal/<organization>/webhooks/<webhook_id>/deliveries/<delivery_id>")
@visiting
def webhook_delivery(visit: Visit, webhook_id: str, delivery_id: str) -> Answer:
    """One delivery: what was sent, and the head of the answer."""
    return _delivery(visit, webhook_id, delivery_id)


@portal.post("/portal/<organization>/webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver")
@visiting
def webhook_redeliver(visit: Visit, webhook_id: str, delivery_id: str) -> Answer:
    """The event is sent once more."""
    try:
        redeliver(visit.actor, webhook_id, delivery_id)
    except (Conflict, TooManyRequests) as refusal:
        return _delivery(visit, webhook_id, delivery_id, refusal)
    return visit.done(f"/webhooks/{webhook_id}/deliveries/{delivery_id}", "webhook-told")


def _sent() -> dict[str, Any]:
    """The fields of the form; single event types come first, so that an error names their line."""
    return {
        "url": text("url"),
        "description": text("description"),
        "event_types": [*lines("event_types"), *ticked("groups")],
        "status": "enabled" if is_ticked("is_enabled") else "disabled",
    }


def _form(
    visit: Visit,
    webhook: WebhookRecord | None,
    values: dict[str, Any],
    errors: dict[str, str],
    *,
    code: int | None = None,
) -> BaseResponse:
    chosen = list(values["event_types"])
    return visit.render(
        "portal/webhooks/form.html",
        code=code or (400 if errors else 200),
        webhook=webhook,
        values=values,
        groups=[(name, WEBHOOK_GROUPS[name], _members(name)) for name in (ALL_EVENTS, *_by_title())],
        single=[name for name in chosen if not name.endswith(ALL_EVENTS)],
        event_types=EVENT_TYPES,
        errors=errors,
    )


def _by_title() -> list[str]:
    return sorted(GROUPS, key=lambda name: WEBHOOK_GROUPS[name].removeprefix("The ").lower())


def _members(group: str) -> str | None:
    names = [name for name in EVENT_TYPES if name.startswith(group.removesuffix(ALL_EVENTS))]
    return (
        None if group == ALL_EVENTS else ", ".join(name.partition(".")[2].replace("_", " ") for name in names)
    )


def _page(
    visit: Visit, webhook_id: str, errors: dict[str, str], refusal: DomainError | None = None
) -> BaseResponse:
    here, listing = visit.organization.id, f"portal deliveries {webhook_id}"
    found = get_webhook(visit.actor, webhook_id)
    page = list_deliveries(visit.actor, webhook_id, after=position(here, listing))
    return visit.render(
        "portal/webhooks/show.html",
        code=refusal.status if refusal else 200,
        webhook=found,
        page=page,
        errors=errors,
        faults=WEBHOOK_FAULTS,
        pager=pages_of(page, here, listing),
    )


def _delivery(
    visit: Visit, webhook_id: str, delivery_id: str, refusal: DomainError | None = None
) -> BaseResponse:
    record = get_delivery(visit.actor, webhook_id, delivery_id)
    return visit.render(
        "portal/webhooks/delivery.html",
        code=refusal.status if refusal else 200,
        webhook=get_webhook(visit.actor, webhook_id),
        delivery=record,
        body=None if record.body is None else json.dumps(record.body, indent=2, ensure_ascii=False),
        refusal=refusal.description if refusal else None,
    )
