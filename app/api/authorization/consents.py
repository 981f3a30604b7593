"""Consents: who granted which client access; list, show, withdraw."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Endpoints, show_page
from app.api.representations import (
    ClientId,
    ClientName,
    Count,
    CreatedAt,
    Representation,
    Slug,
    Source,
    UserEmail,
    UserId,
    true,
)
from app.operations.authorization import connected_apps
from app.operations.grants.grant_lists import FILTERS
from app.rules.shapes import PublicId, described
from app.web.bearer import ApiContext

endpoints = Endpoints("Consents", "consents")
_ConsentId = Annotated[str, PublicId("con", "consent")]


class Consent(Representation):
    """A consent of a user to a client."""

    id: Annotated[_ConsentId, Source("public_id")]
    organization_id: Slug
    client_id: ClientId
    client_name: ClientName
    user_id: UserId
    user_email: UserEmail
    scopes: Annotated[list[str], described("The scopes that the user allowed.")]
    created_at: CreatedAt
    updated_at: Annotated[datetime, described("When the user last consented.")]
    expires_at: Annotated[
        datetime | None, described("When the consent and its grants expire. If null, when it is withdrawn.")
    ]
    last_used_at: Annotated[datetime | None, described("When it was last used. Null if it never was.")]


class WithdrawnConsent(Representation):
    """A withdrawn consent."""

    id: _ConsentId
    withdrawn: Annotated[true, described("Always true.")]
    revoked_grants: Annotated[Count, described("The number of grants that were revoked with the consent.")]


@endpoints.page("/consents", returns=Consent, filters=FILTERS)
def list_consents(context: ApiContext) -> object:
    """List consents.

    Consents that users gave and did not withdraw, the newest first. An expired one is listed while its client has an
    active grant. Clients that need no consent have none: see the grants.
    """
    return show_page(context, "consents", connected_apps.list_user_consents, filters=FILTERS)


@endpoints.get("/consents/<consent_id>", returns=Consent)
def get_consent(context: ApiContext, consent_id: str) -> object:
    """Get a consent."""
    return connected_apps.get_user_consent(context.actor, consent_id)


@endpoints.delete("/consents/<consent_id>", returns=WithdrawnConsent)
def withdraw_consent(context: ApiContext, consent_id: str) -> object:
    """Withdraw a consent.

    The user's grants and tokens at the client are revoked immediately. The client may ask for consent again.
    """
    revoked = connected_apps.withdraw_user_consent(context.actor, consent_id)
    return {"id": consent_id, "withdrawn": True, "revoked_grants": revoked}
