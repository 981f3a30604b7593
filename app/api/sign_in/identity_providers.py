"""Identity providers, their provisioning tokens, and the accounts that a user has linked."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Body, Endpoints, Shown, show_page
from app.api.representations import CreatedAt, CreatedBy, Representation, Source, UpdatedAt, optional
from app.operations.sign_in import identity_providers, linked_identities, provisioning_tokens
from app.rules.shapes import OneOf, PublicId, described
from app.rules.sign_in.identity_providers import STATUSES, IdentityProviderChange, NewIdentityProvider
from app.web.bearer import ApiContext
from app.web.json_api import expected_version

endpoints = Endpoints("Identity providers", "settings")
_of_users = Endpoints("Users", "users")
_ProviderId = Annotated[str, PublicId("idp", "identity provider")]
_Slug = Annotated[str, described("Its name in URLs, which is part of the redirect URI.")]
_Name = Annotated[str, described("The name on the sign-in button.")]


class IdentityProvider(Representation):
    """An identity provider, without the client secret."""

    id: Annotated[_ProviderId, Source("public_id")]
    slug: _Slug
    name: _Name
    issuer: Annotated[str, described("The provider's issuer, an HTTPS URL.")]
    client_id: Annotated[str, described("The client ID that the provider issued.")]
    scopes: Annotated[list[str], described("The scopes to request.")]
    create_users: Annotated[bool, described("Whether people who sign in for the first time get an account.")]
    link_users: Annotated[
        bool,
        described("Whether people whose verified email is that of an existing user sign in as that user."),
    ]
    trust_emails: Annotated[
        bool, described("Whether emails count as verified if the provider doesn't say so.")
    ]
    groups_claim: Annotated[str, described("The claim with the user's groups at the provider.")]
    status: Annotated[
        str,
        OneOf(STATUSES),
        described("Nobody can sign in with a disabled provider, and its provisioning tokens are rejected."),
    ]
    redirect_uri: Annotated[str, described("The redirect URI to register at the provider.")]
    backchannel_logout_uri: Annotated[
        str,
        described(
            "The URL to register for back-channel logout, so that signing out there ends sessions here."
        ),
    ]
    scim_url: Annotated[
        str,
        described("The base URL for SCIM 2.0, with which the provider creates and changes users and groups."),
    ]
    created_at: CreatedAt
    created_by: CreatedBy
    updated_at: UpdatedAt


class ProvisioningToken(Representation):
    """A token with which an identity provider creates and changes users and groups, without its value."""

    id: Annotated[str, PublicId("pvt", "provisioning token"), Source("public_id")]
    hint: Annotated[str, described("The last four characters.")]
    created_at: CreatedAt
    created_by: CreatedBy
    last_used_at: Annotated[
        datetime | None, described("When it was last used, to the minute. Null if it never was.")
    ]


class CreatedProvisioningToken(ProvisioningToken):
    """A new provisioning token."""

    provisioning_token: Annotated[str, described("The token. Only this response contains it.")] = optional()


class LinkedIdentity(Representation):
    """An account at an identity provider that signs a user in."""

    id: Annotated[str, PublicId("idn", "linked account"), Source("public_id")]
    provider_id: Annotated[_ProviderId, Source("provider_public_id")]
    provider_slug: _Slug
    provider_name: _Name
    subject: Annotated[str, described("The ID of the account at the provider: `sub` of its ID tokens.")]
    email: Annotated[
        str | None,
        described("The email of the account at the last sign-in. Null if the provider sent none."),
    ]
    created_at: Annotated[datetime, described("When it was linked.")]
    last_used_at: Annotated[datetime | None, described("When it last signed the user in.")]


@endpoints.page("/identity-providers", returns=IdentityProvider)
def list_identity_providers(context: ApiContext) -> object:
    """List identity providers.

    The newest first.
    """
    return show_page(context, "identity providers", identity_providers.list_identity_providers)


@endpoints.post(
    "/identity-providers",
    body=NewIdentityProvider,
    returns=IdentityProvider,
    prepare=lambda context, body: identity_providers.check_issuer(context.actor, body),
)
def create_identity_provider(context: ApiContext, body: Body) -> object:
    """Create an identity provider.

    From now on, users can sign in with it. Its metadata and keys are read first: if they can't be used, the response is
    400 with the reason at `issuer`. Register `redirect_uri` of the response at the provider. An organization can have
    at most 20. Also requires `users:write` and, for a user, a recent sign-in (RFC 9470).
    """
    return identity_providers.create_identity_provider(context.actor, body)


@endpoints.get("/identity-providers/<provider_id>", returns=IdentityProvider)
def get_identity_provider(context: ApiContext, provider_id: str) -> object:
    """Get an identity provider."""
    return identity_providers.get_identity_provider(context.actor, provider_id)


@endpoints.put("/identity-providers/<provider_id>", body=IdentityProviderChange, returns=IdentityProvider)
def update_identity_provider(context: ApiContext, body: Body, provider_id: str) -> object:
    """Update an identity provider.

    `slug` can't be changed, nor `issuer` while users have linked accounts: create another provider instead. Sessions
    don't end when a provider is disabled. Also requires `users:write` and, for a user, a recent sign-in (RFC 9470).
    """
    return identity_providers.update_identity_provider(
        context.actor, provider_id, body, expected_version=expected_version()
    )


@endpoints.delete("/identity-providers/<provider_id>", returns=IdentityProvider, if_match=True)
def delete_identity_provider(context: ApiContext, provider_id: str) -> object:
    """Delete an identity provider.

    The links of users to their accounts there and its provisioning tokens are deleted, too. Users, groups and sessions
    stay. If no user could sign in without it, the response is 409. Also requires `users:write` and, for a user, a
    recent sign-in (RFC 9470).
    """
    return identity_providers.delete_identity_provider(
        context.actor, provider_id, expected_version=expected_version()
    )


@endpoints.get("/identity-providers/<provider_id>/provisioning-tokens", returns=list[ProvisioningToken])
def list_provisioning_tokens(context: ApiContext, provider_id: str) -> object:
    """List provisioning tokens.

    The oldest first.
    """
    return provisioning_tokens.list_provisioning_tokens(context.actor, provider_id)


@endpoints.post(
    "/identity-providers/<provider_id>/provisioning-tokens", returns=CreatedProvisioningToken, etag=False
)
def create_provisioning_token(context: ApiContext, provider_id: str) -> object:
    """Create a provisioning token.

    With it, the provider creates, changes and deletes users and groups at `scim_url` (SCIM 2.0, RFC 7644). A provider
    can have at most two, so that one can replace the other. Also requires `users:write` and, for a user, a recent
    sign-in (RFC 9470).
    """
    new = provisioning_tokens.create_provisioning_token(context.actor, provider_id)
    return Shown(new.record, {"provisioning_token": new.token})


@endpoints.delete(
    "/identity-providers/<provider_id>/provisioning-tokens/<provisioning_token_id>", returns=ProvisioningToken
)
def delete_provisioning_token(context: ApiContext, provider_id: str, provisioning_token_id: str) -> object:
    """Delete a provisioning token.

    It is rejected from now on. Users and groups that were created with it stay. Also requires `users:write` and, for a
    user, a recent sign-in (RFC 9470).
    """
    return provisioning_tokens.delete_provisioning_token(context.actor, provider_id, provisioning_token_id)


@_of_users.get("/users/<user_id>/linked-identities", returns=list[LinkedIdentity])
def list_user_identities(context: ApiContext, user_id: str) -> object:
    """List a user's linked accounts.

    The accounts at identity providers that sign the user in, the oldest first.
    """
    return linked_identities.list_user_identities(context.actor, user_id)


@_of_users.delete("/users/<user_id>/linked-identities/<identity_id>", returns=LinkedIdentity)
def unlink_user_identity(context: ApiContext, user_id: str, identity_id: str) -> object:
    """Unlink an account of a user.

    It no longer signs the user in. The user's sessions end, grants are revoked, and the user is notified by email. If
    the provider links or creates users by email, the next sign-in there may link the account again. For a user, a
    recent sign-in is required (RFC 9470).
    """
    return linked_identities.unlink_user_identity(context.actor, user_id, identity_id)
