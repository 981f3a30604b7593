"""OpenAPI: organizations, their administrators and invitations."""

from __future__ import annotations

from app.api.openapi.common import SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    changed,
    closed,
    flag,
    listed,
    made,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    request_object,
    shown,
    text,
)

_NAME = text("For people; may change.", minLength=1, maxLength=100)
_EMAIL = text(minLength=3, maxLength=254)
_ROLE = text(
    "admin, developer, auditor, member, or a role of the organization's own.", minLength=1, maxLength=64
)
_INVITATION = {
    "id": public_id("inv"),
    "organization_id": SLUG,
    "email": text(),
    "name": text(),
    "role": text(),
    "created_at": moment(),
    "created_by": nullable(text()),
    "expires_at": moment(),
}
_LINK = text("Shown this once, since no mail server is configured: pass it on to the person.", format="uri")

SCHEMAS: Schema = {
    "Organization": closed(
        {
            "id": SLUG,
            "name": text(),
            "status": text(enum=["active", "suspended", "deleted"]),
            "issuer": text("The issuer of its tokens (RFC 8414).", format="uri"),
            "is_root": flag(),
            "created_at": moment(),
            "created_by": nullable(text()),
            "updated_at": moment(),
            "purge_at": nullable(moment("When a deleted organization's data goes for ever.")),
        }
    ),
    "NewOrganization": request_object(
        {
            "name": _NAME,
            "id": nullable(SLUG | {"description": "Derived from the name when left out; never given again."}),
            "admin": nullable(
                request_object({"email": _EMAIL, "name": nullable(_NAME)}, required=["email"])
                | {"description": "Is invited as first administrator."}
            ),
            "settings": nullable(ref("SettingsChange")),
        },
        required=["name"],
    ),
    "OrganizationChange": request_object(
        {
            "name": _NAME,
            "status": text(
                "For root alone; active also restores a deleted one. Suspending is a pause: sign-ins wait and do not "
                "end, so no client is told of a logout; tokens are refused until the organization is active again.",
                enum=["active", "suspended"],
            ),
        }
    ),
    "Administrator": closed(
        {
            "id": text("`adm_…`, or `inv_…` of somebody who is invited.", pattern="^(adm|inv)_[0-9a-z]{26}$"),
            "organization_id": SLUG,
            "user_id": nullable(public_id("usr")),
            "user_organization_id": nullable(
                text("The organization the person belongs to: this one, or root.")
            ),
            "email": text(),
            "name": text(),
            "role": text(),
            "status": text(enum=["active", "disabled", "invited"]),
            "created_at": moment(),
            "created_by": nullable(text()),
            "expires_at": moment("When the invitation ends."),
            "invitation_link": _LINK,
        },
        optional=("expires_at", "invitation_link"),
    ),
    "NewAdministrator": request_object(
        {
            "user_id": nullable(text("A user who is there.", minLength=1, maxLength=64)),
            "email": nullable(_EMAIL | {"description": "A user's confirmed address, or one to invite."}),
            "name": nullable(_NAME | {"description": "With an address that is to be invited."}),
            "role": nullable(_ROLE | {"description": "`admin` when left out."}),
        }
    ),
    "Invitation": closed(_INVITATION),
}
_CREATED = closed(
    {
        **SCHEMAS["Organization"]["properties"],
        "invitation": nullable(closed({**_INVITATION, "link": _LINK}, optional=("link",))),
    }
)
SCHEMAS["OrganizationCreated"] = _CREATED

_STATUS = query_parameter("status", text(enum=["active", "suspended", "deleted"]), "Those of one status.")
_SEARCH = query_parameter(
    "q", text(minLength=1, maxLength=1000), "The beginning of an id, or a part of a name."
)
_ROLE_FILTER = query_parameter("role", text(minLength=1, maxLength=64), "Those with one role.")


def _sort(*fields: str) -> Schema:
    words = [sign + field for field in fields for sign in ("", "-")]
    return query_parameter("sort", text(enum=words, default=fields[0]), "Order; `-` turns it round.")


PATHS: Schema = {
    "/organizations": path_item(
        (),
        get=operation(
            "listOrganizations",
            "List organizations",
            tag="Organizations",
            scope="organization:read",
            description="Root, with `organizations:read`, sees every organization; others see their own.",
            parameters=("Limit", "Cursor"),
            query=(_SEARCH, _STATUS, _sort("id")),
            answers=listed("A page of organizations.", "Organization"),
            is_always_there=True,
        ),
        post=operation(
            "createOrganization",
            "Create an organization",
            tag="Organizations",
            scope="organizations:write",
            description="For root alone.",
            parameters=("IdempotencyKey",),
            body=ref("NewOrganization"),
            answers=made("The new organization.", "OrganizationCreated"),
            is_always_there=True,
        ),
    ),
    "/organizations/{id}": path_item(
        ("OrganizationId",),
        get=operation(
            "getOrganization",
            "Read an organization",
            tag="Organizations",
            scope="organization:read",
            answers=shown("The organization.", "Organization", etag=True),
        ),
        put=operation(
            "updateOrganization",
            "Update an organization",
            tag="Organizations",
            scope="organization:write",
            description="`status` is for root alone, with `organizations:write`.",
            parameters=("IfMatch",),
            body=ref("OrganizationChange"),
            answers=changed("The organization.", "Organization"),
            extra=("409",),
        ),
        delete=operation(
            "deleteOrganization",
            "Delete an organization",
            tag="Organizations",
            scope="organization:delete",
            description="All stops at once; the data is purged at `purge_at`, until when root may restore it. "
            "Restored, it has its people and clients again, who sign in and ask for tokens anew.",
            parameters=("IfMatch",),
            answers=shown("The deleted organization.", "Organization"),
            extra=("409",),
        ),
    ),
    "/organizations/{id}/admins": path_item(
        ("OrganizationId",),
        get=operation(
            "listAdministrators",
            "List the administrators",
            tag="Administrators",
            scope="admins:read",
            description="Everybody who holds a role in the organization.",
            parameters=("Limit", "Cursor"),
            query=(_ROLE_FILTER, _sort("created_at")),
            answers=listed("A page of administrators.", "Administrator"),
        ),
        post=operation(
            "addAdministrator",
            "Add an administrator",
            tag="Administrators",
            scope="admins:write",
            description="`user_id` or `email`, one of them. An unknown address is invited. "
            "Nobody grants a role that holds what they lack.",
            parameters=("IdempotencyKey",),
            body=ref("NewAdministrator"),
            answers=made("The administrator, or who was invited.", "Administrator"),
        ),
    ),
    "/organizations/{id}/admins/{adminId}": path_item(
        ("OrganizationId", "AdminId"),
        get=operation(
            "getAdministrator",
            "Read an administrator",
            tag="Administrators",
            scope="admins:read",
            answers=shown("The administrator.", "Administrator", etag=True),
        ),
        delete=operation(
            "removeAdministrator",
            "Remove an administrator",
            tag="Administrators",
            scope="admins:write",
            description="From the next call on the person may no longer. The last one stays: 409 `last_administrator`.",
            parameters=("IfMatch",),
            answers=shown("Who was removed.", "Administrator"),
            extra=("409",),
        ),
    ),
    "/organizations/{id}/invitations": path_item(
        ("OrganizationId",),
        get=operation(
            "listInvitations",
            "List the open invitations",
            tag="Administrators",
            scope="admins:read",
            parameters=("Limit", "Cursor"),
            answers=listed("A page of invitations.", "Invitation"),
        ),
    ),
    "/organizations/{id}/invitations/{invitationId}": path_item(
        ("OrganizationId", "InvitationId"),
        get=operation(
            "getInvitation",
            "Read an open invitation",
            tag="Administrators",
            scope="admins:read",
            answers=shown("The invitation.", "Invitation", etag=True),
        ),
        delete=operation(
            "revokeInvitation",
            "Withdraw an invitation",
            tag="Administrators",
            scope="admins:write",
            parameters=("IfMatch",),
            answers=shown("The invitation that works no more.", "Invitation"),
        ),
    ),
}
