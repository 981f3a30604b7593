"""Revoking widely: what would end, the button that ends it, and the receipts of what was ended."""

from __future__ import annotations

from typing import Any

from flask import request

from app.operations.audit.audit_events import find_names
from app.operations.tokens.bulk_revocation import WiderRevocation, revoke_widely
from app.operations.tokens.revocation_receipts import get_receipt, list_receipts
from app.portal.blueprint import portal
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import InvalidInput
from app.rules.tokens.revocation import ORGANIZATION, WITH_SESSIONS
from app.web.forms import field_errors, is_ticked, text

_LISTING = "portal revocations"
_SELECTORS = ("client_id", "credential_id", "user_id")


@portal.get("/portal/<organization>/revocations")
@visiting
def revocations(visit: Visit) -> Answer:
    """The receipts, the newest first."""
    page = list_receipts(
        visit.actor, visit.organization.slug, after=position(visit.organization.id, _LISTING)
    )
    return visit.render(
        "portal/revocations/list.html",
        page=page,
        names=find_names(visit.actor, [receipt.subject for receipt in page.items]),
        may_revoke=visit.actor.has_permission("tokens:revoke"),
        pager=pages_of(page, visit.organization.id, _LISTING),
    )


@portal.get("/portal/<organization>/revocations/<revocation_id>")
@visiting
def revocation(visit: Visit, revocation_id: str) -> Answer:
    """One receipt."""
    receipt = get_receipt(visit.actor, visit.organization.slug, revocation_id)
    names = find_names(visit.actor, [receipt.subject])
    return visit.render("portal/revocations/receipt.html", receipt=receipt, names=names)


@portal.route("/portal/<organization>/revocations/new", methods=["GET", "POST"])
@visiting
def revoke_widely_page(visit: Visit) -> Answer:
    """How much would end. The button Count asks again for another moment, the button Revoke ends it."""
    order = _order(visit)
    errors: dict[str, str] = {}
    try:
        if request.method == "POST" and text("action") == "revoke":
            done = revoke_widely(visit.actor, visit.organization.slug, order)
            return visit.done(f"/revocations/{done.receipt.public_id}", "tokens-revoked")
        would = _count(visit, order)
    except InvalidInput as refusal:
        errors = field_errors(refusal)
        would = _count(visit, _selection())
    return visit.render(
        "portal/revocations/new.html",
        code=400 if errors else 200,
        would=would.receipt,
        names=find_names(visit.actor, [would.receipt.subject]),
        warnings=would.warnings,
        offers_sessions=would.receipt.kind in WITH_SESSIONS,
        is_everything=would.receipt.kind == ORGANIZATION,
        values={name: text(name) for name in ("issued_before", "reason")},
        selection=_selection(),
        back=_back(visit),
        errors=errors,
    )


def _count(visit: Visit, order: dict[str, Any]) -> WiderRevocation:
    return revoke_widely(visit.actor, visit.organization.slug, {**order, "dry_run": True})


def _selection() -> dict[str, Any]:
    chosen: dict[str, Any] = {name: request.values[name] for name in _SELECTORS if request.values.get(name)}
    return chosen or {"all": True}


def _order(visit: Visit) -> dict[str, Any]:
    order = _selection()
    if request.method == "GET":
        # What the page offers ticked: a person is signed out, an organization is not.
        return order
    moment = text("issued_before")
    order |= {"issued_before": f"{moment}Z" if moment else None, "reason": text("reason") or None}
    if "client_id" not in order and "credential_id" not in order:
        order["include_sessions"] = is_ticked("include_sessions")
    return order


def _back(visit: Visit) -> str:
    chosen = _selection()
    if "client_id" in chosen:
        return visit.url(f"/clients/{chosen['client_id']}/tokens")
    return visit.url(f"/users/{chosen['user_id']}" if "user_id" in chosen else "/revocations")
