"""The resources of SCIM, and what they are here (RFC 7643 sections 4.1 and 4.2).

``userName`` is the email, unless the provider also sends ``emails``: then it may be any name, such as an account name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from scim2_models import (
    URN,
    AnyExtension,
    AuthenticationScheme,
    Bulk,
    CaseExact,
    ChangePassword,
    ComplexAttribute,
    ETag,
    Extension,
    Filter,
    GroupMember,
    Meta,
    Mutability,
    Patch,
    Reference,
    Required,
    Resource,
    ResourceType,
    ServiceProviderConfig,
    Sort,
    Uniqueness,
)

from app.operations.users.provisioned_groups import ProvisionedGroup
from app.operations.users.provisioning import ProvisionedUser
from app.rules.mail.email_addresses import canonical_email
from app.rules.users.profile import join_names
from app.web.json_api import etag_headers

MAX_RESULTS = 100
T = TypeVar("T", bound="Value | Address")
R = TypeVar("R", bound=Resource[Any])


class Name(ComplexAttribute):
    """The parts of a user's name."""

    formatted: str | None = None
    family_name: str | None = None
    given_name: str | None = None
    middle_name: str | None = None


class Value(ComplexAttribute):
    """An email or a phone number. One of each is stored: the primary one, or else the first."""

    value: str | None = None
    type: str | None = None
    primary: bool | None = None


class Address(ComplexAttribute):
    """A postal address. One is stored."""

    formatted: str | None = None
    street_address: str | None = None
    locality: str | None = None
    region: str | None = None
    postal_code: str | None = None
    country: str | None = None
    type: str | None = None
    primary: bool | None = None


class Membership(ComplexAttribute):
    """A group of a user."""

    value: Annotated[str | None, Mutability.read_only, CaseExact.true] = None
    display: Annotated[str | None, Mutability.read_only] = None


class Enterprise(Extension):
    """The enterprise extension (RFC 7643 section 4.3). Each value is stored in the custom attribute of that name."""

    __schema__ = URN("urn:ietf:params:scim:schemas:extension:enterprise:2.0:User")

    employee_number: str | None = None
    cost_center: str | None = None
    organization: str | None = None
    division: str | None = None
    department: str | None = None


class User(Resource[AnyExtension]):
    """A user."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    name: Name | None = None
    display_name: str | None = None
    nick_name: str | None = None
    title: str | None = None
    user_type: str | None = None
    profile_url: str | None = None
    locale: str | None = None
    timezone: str | None = None
    active: bool | None = None
    emails: list[Value] | None = None
    phone_numbers: list[Value] | None = None
    addresses: list[Address] | None = None
    groups: Annotated[list[Membership] | None, Mutability.read_only] = None


EnterpriseUser = User[Enterprise]


class Member(GroupMember):
    """A member of a group, which is always a user. Their type and name are not returned."""

    type: Annotated[str | None, Mutability.read_only] = None
    display: Annotated[str | None, Mutability.read_only] = None


class Group(Resource[Any]):
    """A group, whose members are users."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, Required.true, Uniqueness.server] = None
    members: list[Member] | None = None


# Each claim of the profile, and the attribute that it comes from.
_NAME_PARTS = {"given_name": "given_name", "middle_name": "middle_name", "family_name": "family_name"}
_SIMPLE = {"nickname": "nick_name", "profile": "profile_url", "zoneinfo": "timezone", "locale": "locale"}
# Custom attributes are named as the attributes here.
_OF_USER = ("title", "user_type")
_OF_ENTERPRISE = ("employee_number", "cost_center", "organization", "division", "department")
_ADDRESS_PARTS = ("formatted", "street_address", "locality", "region", "postal_code", "country")


def show_user(found: ProvisionedUser, base_url: str) -> EnterpriseUser:
    """Return the resource of a user."""
    user, profile = found.user, found.user.profile
    address = profile.get("address")
    phone = profile.get("phone_number")
    name: dict[str, Any] = {part: profile.get(claim) for claim, part in _NAME_PARTS.items()}
    name["formatted"] = user.name or None
    simple: dict[str, Any] = {attribute: profile.get(claim) for claim, attribute in _SIMPLE.items()}
    simple |= {key: found.attributes.get(key) for key in _OF_USER}
    resource = EnterpriseUser(
        external_id=found.external_id,
        user_name=found.user_name or user.email,
        name=Name(**name) if any(name.values()) else None,
        display_name=user.name or None,
        active=user.is_active,
        emails=[Value(value=user.email, type="work", primary=True)],
        phone_numbers=[Value(value=phone, type="work", primary=True)] if phone else None,
        addresses=[Address(**address, type="work", primary=True)] if address else None,
        groups=[Membership(value=group_id, display=group) for group_id, group in found.groups] or None,
        **simple,
    )
    enterprise: dict[str, Any] = {key: found.attributes.get(key) for key in _OF_ENTERPRISE}
    if any(enterprise.values()):
        resource[Enterprise] = Enterprise(**enterprise)
    return _identify(resource, user, "User", f"{base_url}/Users/{user.public_id}")


def show_group(found: ProvisionedGroup, base_url: str) -> Group:
    """Return the resource of a group."""
    group = found.group
    resource = Group(
        external_id=found.external_id,
        display_name=group.name,
        members=[
            Member(value=user_id, ref=Reference(f"{base_url}/Users/{user_id}"))
            for user_id in found.members or ()
        ]
        or None,
    )
    return _identify(resource, group, "Group", f"{base_url}/Groups/{group.public_id}")


def _identify(resource: R, record: Any, kind: str, location: str) -> R:
    resource.id = record.public_id
    resource.meta = Meta(
        resource_type=kind,
        created=record.created_at,
        last_modified=record.updated_at,
        location=location,
        version=etag_headers(record.version)["ETag"],
    )
    return resource


def user_fields(resource: EnterpriseUser, before: EnterpriseUser | None = None) -> dict[str, Any]:
    """Return the fields of a user, as operations take them. ``before`` is the resource that was changed, if any."""
    name = resource.name or Name()
    display = resource.display_name or name.formatted
    if before is not None and before.name is not None and resource.display_name == before.display_name:
        display = name.formatted if name.formatted != before.name.formatted else display
    if not display:
        display = join_names(name.given_name, name.family_name)
    address = _primary(resource.addresses)
    phone = _primary(resource.phone_numbers)
    enterprise = resource[Enterprise] or Enterprise()
    return {
        "email": _email(resource, before),
        "name": display or "",
        "profile": {
            **{claim: getattr(name, part) for claim, part in _NAME_PARTS.items()},
            **{claim: getattr(resource, attribute) for claim, attribute in _SIMPLE.items()},
            # RFC 3966, as section 4.1.2 wants it.
            "phone_number": phone.value.removeprefix("tel:") if phone and phone.value else None,
            "address": {part: value for part in _ADDRESS_PARTS if (value := getattr(address, part))}
            if address
            else None,
        },
        "attributes": {
            **{key: getattr(resource, key) for key in _OF_USER},
            **{key: getattr(enterprise, key) for key in _OF_ENTERPRISE},
        },
    }


def _email(resource: EnterpriseUser, before: EnterpriseUser | None) -> str:
    """Return the primary email, or else the user name, if it is one.

    Whoever was named by the email still is if only the user name changed.
    """
    user_name = resource.user_name or ""
    sent, old = (_primary(each.emails) if each is not None else None for each in (resource, before))
    email = sent.value if sent is not None and sent.value else None
    if before is None or old is None:
        return email or user_name
    was_named_by_email = canonical_email(before.user_name or "") == canonical_email(old.value or "")
    if email in {None, old.value} and was_named_by_email and canonical_email(user_name) is not None:
        return user_name
    return email or old.value or ""


def _primary(values: list[T] | None) -> T | None:
    return next((each for each in values or () if each.primary), values[0] if values else None)


def configuration(base_url: str) -> ServiceProviderConfig:
    """Return what this service supports (RFC 7643 section 5)."""
    return ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=MAX_RESULTS),
        change_password=ChangePassword(supported=False),
        sort=Sort(supported=False),
        etag=ETag(supported=True),
        authentication_schemes=[
            AuthenticationScheme(
                type=AuthenticationScheme.Type.oauthbearertoken,
                name="Provisioning token",
                description="A provisioning token of an identity provider, sent as Authorization: Bearer.",
                primary=True,
            )
        ],
        meta=Meta(resource_type="ServiceProviderConfig", location=f"{base_url}/ServiceProviderConfig"),
    )


def resource_types(base_url: str) -> Mapping[str, ResourceType]:
    """Return the types of resources by name (RFC 7643 section 6)."""
    return {str(kind.name): kind for kind in (_type_of(model, base_url) for model in (EnterpriseUser, Group))}


def _type_of(model: type[Resource[Any]], base_url: str) -> ResourceType:
    found = ResourceType.from_resource(model)
    found.meta = Meta(resource_type="ResourceType", location=f"{base_url}/ResourceTypes/{found.name}")
    return found


def schemas(base_url: str) -> Mapping[str, Any]:
    """Return the schemas by URN (RFC 7643 section 7)."""
    found = {}
    for model in (User, Enterprise, Group):
        schema = model.to_schema()
        schema.meta = Meta(resource_type="Schema", location=f"{base_url}/Schemas/{schema.id}")
        found[str(schema.id)] = schema
    return found
