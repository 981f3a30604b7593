"""Invitations, and self-registrations that await verification or approval."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Endpoints, show_page
from app.api.representations import CreatedAt, CreatedBy, Representation, Slug, Source, UserId
from app.operations.users import invitations, registrations
from app.rules.shapes import PublicId, described
from app.web.bearer import ApiContext
from app.web.json_api import expected_version

endpoints = Endpoints("Administrators", "admins")
registration_endpoints = Endpoints("Users", "users")
_RegistrationId = Annotated[str, PublicId("reg", "registration")]


class Invitation(Representation):
    """An invitation to an organization."""

    id: Annotated[str, PublicId("inv", "invitation"), Source("public_id")]
    organization_id: Annotated[Slug, Source("organization_slug")]
    email: Annotated[str, described("The email address that the invitation was sent to.")]
    name: Annotated[str, described("The display name that the user will have. It may be empty.")]
    role: Annotated[str, described("The role that the user will have.")]
    created_at: CreatedAt
    created_by: CreatedBy
    expires_at: Annotated[datetime, described("When the link in the email stops working.")]


@endpoints.page("/organizations/<slug>/invitations", returns=Invitation)
def list_invitations(context: ApiContext, slug: str) -> object:
    """List the open invitations."""
    return show_page(context, f"invitations {slug}", invitations.list_invitations, slug)


@endpoints.get("/organizations/<slug>/invitations/<invitation_id>", returns=Invitation)
def get_invitation(context: ApiContext, slug: str, invitation_id: str) -> object:
    """Get an open invitation."""
    return invitations.get_invitation(context.actor, slug, invitation_id)


@endpoints.delete(
    "/organizations/<slug>/invitations/<invitation_id>", returns=Invitation, if_match=True, errors=()
)
def revoke_invitation(context: ApiContext, slug: str, invitation_id: str) -> object:
    """Revoke an invitation."""
    return invitations.revoke_invitation(
        context.actor, slug, invitation_id, expected_version=expected_version()
    )


class Registration(Representation):
    """A self-registration."""

    id: Annotated[_RegistrationId, Source("public_id")]
    email: Annotated[str, described("The email address that was entered.")]
    name: Annotated[str, described("The display name that was entered.")]
    link_emailed: Annotated[
        bool,
        Source("is_mailed"),
        described("Whether a link was sent. Without a mail server, the email address can't be verified."),
    ]
    ip_address: Annotated[
        str | None, Source("address"), described("The IP address that the registration was sent from.")
    ]
    created_at: Annotated[datetime, described("When the person registered.")]
    expires_at: Annotated[datetime, described("When the registration is deleted.")]


class ApprovedRegistration(Representation):
    """An approved self-registration."""

    id: _RegistrationId
    user_id: UserId
    email: Annotated[str, described("The email address that the user signs in with.")]


@registration_endpoints.page("/registrations", returns=Registration)
def list_registrations(context: ApiContext) -> object:
    """List registrations that await verification.

    If `authentication.registration.verify_email` is on, a registration becomes a user when its email address is
    verified with a link, or when it is approved here. The newest first.
    """
    return show_page(context, "registrations", registrations.list_registrations)


@registration_endpoints.get("/registrations/<registration_id>", returns=Registration)
def get_registration(context: ApiContext, registration_id: str) -> object:
    """Get a registration."""
    return registrations.get_registration(context.actor, registration_id)


@registration_endpoints.post(
    "/registrations/<registration_id>/approve", status=200, returns=ApprovedRegistration
)
def approve_registration(context: ApiContext, registration_id: str) -> object:
    """Approve a registration.

    Creates the user with the password that they chose. `email_verified` stays false, because the email address was
    not verified with a link. If a user with the email address exists by now, the response is 409. The request body is
    ignored.
    """
    user = registrations.approve_registration(context.actor, registration_id)
    return {"id": registration_id, "user_id": user.public_id, "email": user.email}


@registration_endpoints.delete("/registrations/<registration_id>", returns=Registration)
def reject_registration(context: ApiContext, registration_id: str) -> object:
    """Reject a registration.

    Its link stops working. No email is sent.
    """
    return registrations.reject_registration(context.actor, registration_id)
