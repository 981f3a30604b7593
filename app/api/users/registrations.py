"""Self-registrations that await verification of their email address: list, show, approve, reject."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from flask import Response

from app.api.endpoints import PAGE, Endpoints, list_response
from app.api.representations import Representation, Source, UserId
from app.operations.store.idempotency import IdempotentResult
from app.operations.users import registrations
from app.rules.shapes import PublicId, described
from app.web.bearer import ApiContext
from app.web.idempotency import run_idempotently
from app.web.json_api import envelope

endpoints = Endpoints("Users")
_RegistrationId = Annotated[str, PublicId("reg", "registration")]


class Registration(Representation):
    """A self-registration."""

    id: Annotated[_RegistrationId, Source("public_id")]
    email: str
    name: str
    link_emailed: Annotated[
        bool,
        Source("is_mailed"),
        described("Whether a link was sent. Without a mail server, the email address can't be verified."),
    ]
    ip_address: Annotated[
        str | None, Source("address"), described("The IP address that the registration was sent from.")
    ]
    created_at: datetime
    expires_at: Annotated[datetime, described("When the registration is deleted.")]


class ApprovedRegistration(Representation):
    """An approved self-registration."""

    id: _RegistrationId
    user_id: UserId
    email: str


@endpoints.get("/registrations", scope="users:read", returns=Registration, is_page=True, query=PAGE)
def list_registrations(context: ApiContext) -> Response:
    """List registrations that await verification.

    If `authentication.registration.verify_email` is on, a registration becomes a user when its email address is
    verified with a link, or when it is approved here. The newest first.
    """
    read = registrations.list_registrations
    return list_response(context, "registrations", read, show=Registration.to_json)


@endpoints.get("/registrations/<registration_id>", scope="users:read", returns=Registration)
def get_registration(context: ApiContext, registration_id: str) -> Response:
    """Get a registration."""
    return envelope(Registration.to_json(registrations.get_registration(context.actor, registration_id)))


@endpoints.post(
    "/registrations/<registration_id>/approve", status=200, scope="users:write", returns=ApprovedRegistration
)
def approve_registration(context: ApiContext, registration_id: str) -> Response:
    """Approve a registration.

    Creates the user with the password that they chose. `email_verified` stays false, because the email address was
    not verified with a link. If a user with the email address exists by now, the response is 409. The request body is
    ignored.
    """

    def work() -> IdempotentResult:
        user = registrations.approve_registration(context.actor, registration_id)
        return IdempotentResult(
            200, {"id": registration_id, "user_id": user.public_id, "email": user.email}, {}, {}
        )

    return run_idempotently(context.actor, {}, work)


@endpoints.delete("/registrations/<registration_id>", scope="users:write", returns=Registration)
def reject_registration(context: ApiContext, registration_id: str) -> Response:
    """Reject a registration.

    Its link stops working. Nobody is notified.
    """
    return envelope(Registration.to_json(registrations.reject_registration(context.actor, registration_id)))
