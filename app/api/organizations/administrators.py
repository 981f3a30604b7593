"""Administrators of an organization: list, add or invite, show, remove."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from flask import request

from app.api.endpoints import Body, Endpoints, show_page
from app.api.representations import CreatedAt, CreatedBy, Representation, Slug, Source, Url, UserId, optional
from app.operations.organizations import administrators
from app.operations.organizations.administrators import FILTERS, NewAdministrator
from app.operations.users.invitations import NewInvitation
from app.rules.identifiers import public_id
from app.rules.shapes import OneOf, SchemaOnly, described
from app.web.bearer import ApiContext
from app.web.json_api import created, expected_version

endpoints = Endpoints("Administrators", "admins")


class Administrator(Representation):
    """A role that a user has in an organization, or that an invited person will have."""

    id: Annotated[
        str,
        Source("public_id"),
        SchemaOnly(pattern="^(adm|inv)_[0-9a-z]{26}$"),
        described("`adm_…`, or `inv_…` for an invited person."),
    ]
    organization_id: Annotated[Slug, Source("organization_slug")]
    user_id: Annotated[
        UserId | None,
        Source(lambda record: public_id("usr", record.user_id)),
        described("The user. Null until an invited user has joined."),
    ]
    user_organization_id: Annotated[
        str | None,
        Source("user_organization"),
        described("The organization that the user belongs to: this one, or root."),
    ]
    email: Annotated[str, described("The email address of the user, or that the invitation was sent to.")]
    name: Annotated[str, described("The display name of the user. Empty if it is not known.")]
    role: Annotated[str, described("The ID of the role, such as `admin`.")]
    status: Annotated[
        str,
        OneOf(("active", "disabled", "invited")),
        described("`invited` users have not accepted the invitation yet."),
    ]
    created_at: CreatedAt
    created_by: CreatedBy
    expires_at: Annotated[datetime, described("When the invitation expires.")] = optional()
    invitation_link: Annotated[
        Url,
        described("Only in this response, and only if no mail server is configured. Send it to the person."),
    ] = optional()


@endpoints.page(
    "/organizations/<slug>/admins",
    returns=Administrator,
    search="Part of an email address or a name, or a complete user ID.",
    filters=FILTERS,
)
def list_administrators(context: ApiContext, slug: str) -> object:
    """List the administrators.

    Every user who has a role in the organization. Users with only the role `member` are listed with `role=member`.
    """
    return show_page(context, f"admins {slug}", administrators.list_administrators, slug, filters=FILTERS)


@endpoints.post("/organizations/<slug>/admins", body=NewAdministrator, returns=Administrator)
def add_administrator(context: ApiContext, body: Body, slug: str) -> object:
    """Add an administrator.

    Send either `user_id` or `email`. An unknown email address is invited. Callers can grant only roles whose
    permissions they have. A user needs a recent sign-in (RFC 9470) for any role but `member`.
    """
    added = administrators.add_administrator(context.actor, slug, **body)
    if added.admin is not None:
        return added.admin
    if added.invitation is None:
        raise RuntimeError("An administrator is either added or invited.")
    invited = added.invitation.invitation
    collection = f"{request.path.removesuffix('/admins')}/invitations"
    return created(
        _invited(added.invitation), invited.public_id, version=invited.version, collection=collection
    )


@endpoints.get("/organizations/<slug>/admins/<admin_id>", returns=Administrator)
def get_administrator(context: ApiContext, slug: str, admin_id: str) -> object:
    """Get an administrator."""
    return administrators.get_administrator(context.actor, slug, admin_id)


@endpoints.delete("/organizations/<slug>/admins/<admin_id>", returns=Administrator, if_match=True)
def remove_administrator(context: ApiContext, slug: str, admin_id: str) -> object:
    """Remove an administrator.

    The permissions are lost immediately. The last administrator can't be removed: 409 `last_administrator`.
    """
    return administrators.remove_administrator(
        context.actor, slug, admin_id, expected_version=expected_version()
    )


def _invited(new: NewInvitation) -> dict[str, object]:
    link = {} if new.link is None else {"invitation_link": new.link}
    values = {"user_id": None, "user_organization_id": None, "status": "invited", **link}
    return Administrator.to_json(new.invitation, **values, expires_at=new.invitation.expires_at)
