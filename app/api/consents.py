"""Consents: who allowed which client what, and until when; list, show, withdraw."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.api.lists import filters_of, listed
from app.api.representations import time
from app.operations.authorization import connected_apps
from app.operations.authorization.connected_apps import GivenConsent
from app.operations.grants.grant_lists import FILTERS
from app.web.bearer import Call, management
from app.web.json_api import envelope
from app.web.pagination import PARAMETERS


@api.get("/consents")
@management(*PARAMETERS, *FILTERS)
def list_consents(call: Call) -> Response:
    """The consents that stand and that the caller may see, the newest first."""
    return listed(
        call,
        "consents",
        connected_apps.list_given_consents,
        show=lambda record: consent(record, call),
        filters=filters_of(call, FILTERS),
    )


@api.get("/consents/<consent_id>")
@management()
def get_consent(call: Call, consent_id: str) -> Response:
    """One consent."""
    return envelope(consent(connected_apps.get_given_consent(call.actor, consent_id), call))


@api.delete("/consents/<consent_id>")
@management()
def withdraw_consent(call: Call, consent_id: str) -> Response:
    """The consent is taken back, with every grant and token of that user at the client."""
    ended = connected_apps.withdraw_given_consent(call.actor, consent_id)
    return envelope({"id": consent_id, "withdrawn": True, "ended_grants": ended})


def consent(record: GivenConsent, call: Call) -> dict[str, Any]:
    """A consent as the API shows it."""
    return {
        "id": record.public_id,
        "organization_id": call.organization.slug,
        "client_id": record.client_id,
        "client_name": record.client_name,
        "user_id": record.user_id,
        "user_email": record.user_email,
        "scopes": list(record.scopes),
        "created_at": time(record.created_at),
        "updated_at": time(record.updated_at),
        "expires_at": time(record.expires_at),
        "last_used_at": time(record.last_used_at),
    }
