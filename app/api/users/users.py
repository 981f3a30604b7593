"""Users: list, create, show, update, delete; their sessions and apps, and a link for a new password."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import create_model

from app.api.endpoints import (
    Body,
    Endpoints,
    Shown,
    show_page,
)
from app.api.representations import (
    ClientId,
    ClientName,
    Count,
    CreatedAt,
    Deleted,
    Representation,
    Slug,
    Source,
    UpdatedAt,
    Url,
    UserId,
    optional,
)
from app.operations.clients import ownership
from app.operations.clients.ownership import NewOwner
from app.operations.users import deletion, user_changes, users
from app.operations.users.users import FILTERS
from app.rules.shapes import OneOf, PublicId, described
from app.rules.sign_in.second_factors import PASSKEY, TOTP
from app.rules.users.profile import ADDRESS_PARTS, CHECKS, STATUSES, NewUser, UserChange
from app.web.bearer import ApiContext
from app.web.json_api import expected_version

endpoints = Endpoints("Users", "users")


def _texts(names: Iterable[str]) -> dict[str, Any]:
    return {name: (Annotated[str | None, described(_CLAIMS[name])], None) for name in names}


# OpenID Connect Core sections 5.1 and 5.1.1.
_CLAIMS = {
    "given_name": "Given or first names.",
    "family_name": "Family or last names.",
    "middle_name": "Middle names.",
    "nickname": "A casual name.",
    "preferred_username": "A short name, such as `janedoe`. It is not unique.",
    "profile": "The URL of the user's profile page.",
    "picture": "The URL of a picture of the user.",
    "website": "The URL of the user's web page or blog.",
    "gender": "The gender, such as `female` or `male`.",
    "birthdate": "The birthday as YYYY-MM-DD, 0000-MM-DD without the year, or YYYY.",
    "zoneinfo": "The time zone, such as `Europe/Berlin`.",
    "locale": "The language, such as `de` or `en-GB` (BCP 47).",
    "phone_number": "The phone number, preferably in E.164, such as `+49 30 123456`.",
    "formatted": "The whole address as on a letter, in several lines.",
    "street_address": "The street and house number, possibly in several lines.",
    "locality": "The city.",
    "region": "The state, province or region.",
    "postal_code": "The postal code.",
    "country": "The country.",
}
_PostalAddress = create_model("PostalAddress", __base__=Representation, **_texts(ADDRESS_PARTS))
# The standard claims besides name and email (OpenID Connect Core section 5.1). A profile is replaced as a whole.
UserProfile: Any = create_model(
    "UserProfile",
    __base__=Representation,
    **_texts(CHECKS),
    address=(cast(Any, Annotated[_PostalAddress | None, described("The postal address.")]), None),
)


class UserProvisioning(Representation):
    """The identity provider that manages a user by SCIM."""

    provider_id: Annotated[
        str, PublicId("idp", "identity provider"), described("It may have been deleted since.")
    ]
    external_id: Annotated[
        str | None, described("`externalId`: the provider's ID for the user. Null if it sent none.")
    ]
    user_name: Annotated[
        str | None, described("`userName`: the user's name there, in lower case. Null if it is the email.")
    ]


class User(Representation):
    """A user."""

    id: Annotated[
        UserId, Source("user.public_id"), described("Never reused, even after the user is deleted.")
    ]
    organization_id: Annotated[Slug, Source("organization_slug")]
    email: Annotated[
        str,
        Source("user.email"),
        described("The address that the user signs in with. Unique in the organization."),
    ]
    email_verified: Annotated[
        bool,
        Source("user.email_verified"),
        described("Whether the email address is verified."),
    ]
    name: Annotated[str, Source("user.name"), described("The display name. It may be empty.")]
    profile: Annotated[UserProfile, Source("user.profile")]
    attributes: Annotated[
        dict[str, Any],
        described("Custom attributes by key, as the setting `user_profile.attributes` defines them."),
    ]
    status: Annotated[
        str, OneOf(STATUSES), Source("user.status"), described("A disabled user can't sign in.")
    ]
    roles: Annotated[list[str], described("See `/organizations/{id}/admins`.")]
    has_password: Annotated[
        bool, Source("user.has_password"), described("Whether the user can sign in with a password.")
    ]
    second_factors: Annotated[
        list[Annotated[str, OneOf((TOTP, PASSKEY))]],
        Source("methods"),
        described("The methods that are set up."),
    ]
    provisioning: Annotated[
        UserProvisioning | None,
        described("Who manages the user by SCIM. Null for users whom no identity provider manages."),
    ]
    password_changed_at: Annotated[
        datetime | None,
        Source("user.password_changed_at"),
        described("When the password was last changed. Null without a password."),
    ]
    created_at: Annotated[CreatedAt, Source("user.created_at")]
    updated_at: Annotated[UpdatedAt, Source("user.updated_at")]
    last_sign_in_at: Annotated[
        datetime | None,
        Source("user.last_sign_in_at"),
        described("When the user last signed in. Null if they never did."),
    ]


class UserSession(Representation):
    """A session in a browser."""

    id: Annotated[str, PublicId("ses", "session"), Source("public_id")]
    created_at: Annotated[datetime, described("When the user signed in.")]
    last_seen_at: Annotated[datetime, described("Updated at most once a minute.")]
    expires_at: Annotated[datetime, described("When the session ends at the latest.")]
    ip_address: Annotated[
        str | None,
        Source("address"),
        described("The IP address of the request. Null if it is unknown or was removed."),
    ]
    user_agent: Annotated[str, described("The User-Agent header of the browser that signed in.")]


class UserConsent(Representation):
    """An app that may act for the user."""

    id: Annotated[str, PublicId("con", "consent"), Source("public_id")]
    client_id: ClientId
    client_name: ClientName
    scopes: Annotated[list[str], described("The scopes that the user allowed.")]
    created_at: CreatedAt
    updated_at: UpdatedAt
    expires_at: Annotated[
        datetime | None, described("When the user will be asked again. Null if the consent does not expire.")
    ]
    last_used_at: Annotated[datetime | None, described("When it was last used. Null if it never was.")]


class RevokedWithUser(Representation):
    """Counts of everything that was revoked with a user."""

    sessions: Annotated[Count, described("Sessions that ended.")]
    grants: Annotated[Count, described("Grants that were revoked.")]
    consents: Annotated[Count, described("Consents that were withdrawn.")]
    roles: Annotated[Count, described("Role assignments that were removed.")]


class DeletedUser(Representation):
    """A deleted user."""

    id: UserId
    deleted: Deleted
    revoked: RevokedWithUser


class PasswordReset(Representation):
    """A password reset link."""

    user_id: UserId
    link: Annotated[
        Url, described("The page where the user chooses a new password. Only this response contains it.")
    ] = optional()
    expires_at: Annotated[datetime, described("When the link in the email stops working.")]


class RevokedSessions(Representation):
    """Sessions that were ended."""

    user_id: UserId
    sessions_revoked: Annotated[Count, described("How many sessions were ended.")]


class TransferredOwnership(Representation):
    """How many clients and resources got a new owner."""

    clients: Annotated[Count, described("Client applications.")]
    resources: Annotated[Count, described("Resources (APIs).")]


@endpoints.page(
    "/users",
    returns=User,
    search="The email address of a user, part of one or of a name, or a complete ID.",
    filters=FILTERS,
)
def list_users(context: ApiContext) -> object:
    """List users."""
    return show_page(context, "users", users.list_users, filters=FILTERS)


@endpoints.post("/users", body=NewUser, returns=User)
def create_user(context: ApiContext, body: Body) -> object:
    """Create a user.

    Administrators can't set passwords. The user chooses one with a password reset link.
    """
    return user_changes.add_user(context.actor, body)


@endpoints.get("/users/<user_id>", returns=User)
def get_user(context: ApiContext, user_id: str) -> object:
    """Get a user."""
    return users.get_user_record(context.actor, user_id)


@endpoints.put("/users/<user_id>", body=UserChange, returns=User)
def update_user(context: ApiContext, body: Body, user_id: str) -> object:
    """Update a user.

    A user who has a role with more permissions than the caller can't be changed: 403. The last administrator can't be
    disabled: 409 `last_administrator`. A user needs a recent sign-in (RFC 9470) to change an email address.
    """
    return user_changes.update_user(context.actor, user_id, body, expected_version=expected_version())


@endpoints.delete("/users/<user_id>", returns=DeletedUser, if_match=True)
def delete_user(context: ApiContext, user_id: str) -> object:
    """Delete a user.

    Sessions end, grants, consents and roles are revoked immediately, and personal data is erased. Requires a recent
    sign-in. The last administrator can't be deleted: 409 `last_administrator`.
    """
    counts = deletion.delete_user(context.actor, user_id, expected_version=expected_version())
    return {"id": user_id, "deleted": True, "revoked": RevokedWithUser.to_json(counts)}


@endpoints.post(
    "/users/<user_id>/transfer",
    status=200,
    scope="clients:write",
    body=NewOwner,
    returns=TransferredOwnership,
    is_idempotent=False,
    errors=(409,),
)
def transfer_ownership(context: ApiContext, body: Body, user_id: str) -> object:
    """Make another user the owner of all clients and resources of a user.

    Also those of a deleted user. It needs `resources:write` and `users:read` too. Repeat it after an error to transfer
    the rest. The new owner is notified by email. A user needs a recent sign-in (RFC 9470).
    """
    return ownership.transfer_ownership(context.actor, user_id, body)


@endpoints.post("/users/<user_id>/reset", status=200, returns=PasswordReset)
def reset_user(context: ApiContext, user_id: str) -> object:
    """Create a password reset link.

    The link can be used once and replaces an earlier one. The password stays valid until then. The link is sent by
    email and the response does not contain it, unless there is no mail server or the setting
    `authentication.recovery.password_reset` is off. A user who gets the link in the response needs a recent sign-in
    (RFC 9470).
    """
    reset = user_changes.issue_user_reset_link(context.actor, user_id)
    link = {} if reset.link is None else {"link": reset.link}
    return Shown(reset, {"user_id": user_id, **link})


@endpoints.get("/users/<user_id>/sessions", returns=list[UserSession])
def list_user_sessions(context: ApiContext, user_id: str) -> object:
    """List a user's sessions.

    The active ones, the most recently used first.
    """
    return user_changes.list_user_sessions(context.actor, user_id)


@endpoints.delete("/users/<user_id>/sessions", returns=RevokedSessions)
def revoke_user_sessions(context: ApiContext, user_id: str) -> object:
    """End all sessions of a user.

    Grants with `offline_access` remain valid. Disabling the user revokes them, too.
    """
    count = user_changes.end_user_sessions(context.actor, user_id)
    return {"user_id": user_id, "sessions_revoked": count}


@endpoints.delete("/users/<user_id>/sessions/<session_id>", returns=RevokedSessions)
def revoke_user_session(context: ApiContext, user_id: str, session_id: str) -> object:
    """End one session of a user.

    Grants with `offline_access` remain valid.
    """
    user_changes.end_user_session(context.actor, user_id, session_id)
    return {"user_id": user_id, "sessions_revoked": 1}


@endpoints.get("/users/<user_id>/consents", scope="consents:read", returns=list[UserConsent])
def list_user_consents(context: ApiContext, user_id: str) -> object:
    """List a user's apps.

    The clients that may act for the user.
    """
    return user_changes.list_user_consents(context.actor, user_id)
