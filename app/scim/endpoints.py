"""The endpoints of SCIM (RFC 7644 section 3)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from flask import Response, request
from msgspec import Struct
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from scim2_models import (
    Context,
    Error,
    ListResponse,
    Resource,
    SCIMException,
    ScimPolicy,
    SearchRequest,
)

from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.identity_providers import scim_url_of
from app.operations.sign_in.provisioning_tokens import authenticate_provisioning
from app.operations.store.audit import actor_public_id
from app.operations.users import provisioned_groups, provisioning
from app.operations.users.provisioned_groups import GroupSearch
from app.operations.users.provisioning import UserSearch
from app.rules.actor import Actor
from app.rules.errors import Busy, Conflict, PreconditionFailed
from app.scim import resources
from app.scim.errors import respond, scim_error
from app.scim.member_changes import split_patch
from app.scim.requests import (
    compared_values,
    range_of,
    read_body,
    read_parameters,
    read_patch,
    read_search,
    wants_members,
)
from app.scim.resources import EnterpriseUser, Group, User
from app.web.json_api import expected_version
from app.web.request_log import note, request_id

_ATTEMPTS = 3
# What Microsoft Entra sends beside the standard. Attributes that are not stored are ignored: each provider sends some.
_POLICY = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)


class _Call(Struct, frozen=True):
    """An authenticated request: who acts, and the URL below which the resources are."""

    actor: Actor
    base_url: str


def _endpoint(view: Callable[..., Response]) -> Callable[..., Response]:
    """Return the view as one that authenticates the caller and answers errors of the library."""

    @functools.wraps(view)
    def run(organization: str, **values: str) -> Response:
        found = get_organization_by_slug(organization)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        actor = authenticate_provisioning(
            found,
            token.strip() if scheme.lower() == "bearer" else None,
            ip_address=request.remote_addr,
            request_id=request_id(),
        )
        note(organization=found.slug, actor=actor_public_id(actor))
        call = _Call(actor, scim_url_of(found))
        try:
            with _POLICY:
                return view(call, **values)
        except ValidationError as error:
            return _name_attributes(error)
        except SCIMException as error:
            # Its text about a wrong value is pydantic's, with the names of classes and a link for programmers.
            if isinstance(error.__cause__, ValidationError):
                return _name_attributes(error.__cause__)
            return scim_error(error.status, error.detail, error.scim_type)

    return run


def _name_attributes(error: ValidationError) -> Response:
    named = [
        {**each, "msg": _text(each), "loc": tuple(map(_attribute, each["loc"]))} for each in error.errors()
    ]
    errors = Error.from_validation_errors(named)
    detail = ". ".join(each.detail for each in errors if each.detail)
    return scim_error(errors[0].status or 400, detail, errors[0].scim_type)


def _text(error: Mapping[str, Any]) -> str:
    """Return pydantic's text about the value. Where that names a class of the library, return another one."""
    return "Input should be an object" if error["type"] == "model_type" else str(error["msg"])


def _attribute(part: str | int) -> str | int:
    """Return the name of an attribute. PATCH names the field that it assigns a value to."""
    return to_camel(part) if isinstance(part, str) and "_" in part else part


def _description(view: Callable[..., Response]) -> Callable[..., Response]:
    """Return the view of a description of the service as an endpoint, which has no filter (RFC 7644 section 4)."""

    @functools.wraps(view)
    def run(call: _Call, **values: str) -> Response:
        if "filter" in request.args:
            return scim_error(403, "Descriptions of the service cannot be filtered. Leave out the filter.")
        return view(call, **values)

    return _endpoint(run)


@_description
def show_configuration(call: _Call) -> Response:
    """Return what is supported."""
    return _show(resources.configuration(call.base_url))


@_description
def list_resource_types(call: _Call) -> Response:
    """List the types of resources."""
    return _show_all(list(resources.resource_types(call.base_url).values()))


@_description
def show_resource_type(call: _Call, name: str) -> Response:
    """Return a type of resources."""
    return _show_named(resources.resource_types(call.base_url), name)


@_description
def list_schemas(call: _Call) -> Response:
    """List the schemas."""
    return _show_all(list(resources.schemas(call.base_url).values()))


@_description
def show_schema(call: _Call, name: str) -> Response:
    """Return a schema."""
    return _show_named(resources.schemas(call.base_url), name)


@_endpoint
def list_users(call: _Call) -> Response:
    """List users, those of a filter if there is one."""
    return _list_users(call, read_search(EnterpriseUser, request.args.to_dict()))


@_endpoint
def search_users(call: _Call) -> Response:
    """List users as ``list_users`` does, with the parameters in the body."""
    return _list_users(call, read_search(EnterpriseUser, read_body()))


def _list_users(call: _Call, sent: SearchRequest[EnterpriseUser]) -> Response:
    wanted = UserSearch(
        **compared_values(
            sent,
            User.__schema__,
            {
                "id": "user_id",
                "username": "user_name",
                "externalid": "external_id",
                "emails": "email",
                "emails.value": "email",
                "active": "is_active",
            },
        )
    )
    offset, limit = range_of(sent)
    total, found = provisioning.list_provisioned_users(call.actor, wanted, offset=offset, limit=limit)
    return _show_page(
        sent, total, [resources.show_user(each, call.base_url) for each in found], EnterpriseUser
    )


@_endpoint
def create_user(call: _Call) -> Response:
    """Create a user."""
    sent = EnterpriseUser.model_validate(read_body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
    created = provisioning.provision_user(
        call.actor,
        resources.user_fields(sent),
        user_name=sent.user_name or "",
        external_id=sent.external_id,
        is_active=sent.active is not False,
    )
    return _show(resources.show_user(created, call.base_url), 201)


@_endpoint
def show_user(call: _Call, user_id: str) -> Response:
    """Return a user."""
    found = provisioning.get_provisioned_user(call.actor, user_id)
    return _show(resources.show_user(found, call.base_url))


@_endpoint
def replace_user(call: _Call, user_id: str) -> Response:
    """Replace the attributes of a user."""
    sent = EnterpriseUser.model_validate(read_body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)

    def replace(before: EnterpriseUser) -> EnterpriseUser:
        # What is left out is removed, but not this: the provider would no longer find the user.
        return sent.model_copy(update={"external_id": sent.external_id or before.external_id})

    return _change_user(call, user_id, replace)


@_endpoint
def patch_user(call: _Call, user_id: str) -> Response:
    """Change attributes of a user."""
    patch = read_patch(EnterpriseUser)

    def apply(before: EnterpriseUser) -> EnterpriseUser:
        after = before.model_copy(deep=True)
        patch.patch(after)
        return after

    return _change_user(call, user_id, apply)


def _change_user(call: _Call, user_id: str, change: Callable[[EnterpriseUser], EnterpriseUser]) -> Response:
    def attempt(expected: frozenset[int] | None) -> Response:
        found = provisioning.get_provisioned_user(call.actor, user_id)
        before = resources.show_user(found, call.base_url)
        after = change(before)
        # Whoever leaves out ``active`` or removes it does not mean to enable a disabled user.
        is_active = before.active if after.active is None else after.active
        changed = provisioning.update_provisioned_user(
            call.actor,
            user_id,
            {
                **resources.user_fields(after, before),
                "status": "active" if is_active else "disabled",
            },
            user_name=after.user_name or "",
            external_id=after.external_id,
            expected_version=expected or frozenset({found.user.version}),
        )
        return _show(resources.show_user(changed, call.base_url))

    return _repeat_if_changed(attempt)


@_endpoint
def delete_user(call: _Call, user_id: str) -> Response:
    """Delete a user."""
    provisioning.delete_provisioned_user(call.actor, user_id, expected_version=expected_version())
    return respond(None, 204)


@_endpoint
def list_groups(call: _Call) -> Response:
    """List groups, those of a filter if there is one."""
    return _list_groups(call, read_search(Group, request.args.to_dict()))


@_endpoint
def search_groups(call: _Call) -> Response:
    """List groups as ``list_groups`` does, with the parameters in the body."""
    return _list_groups(call, read_search(Group, read_body()))


def _list_groups(call: _Call, sent: SearchRequest[Group]) -> Response:
    known = {"id": "group_id", "displayname": "name", "externalid": "external_id"}
    wanted = GroupSearch(**compared_values(sent, Group.__schema__, known))
    offset, limit = range_of(sent)
    total, found = provisioned_groups.list_provisioned_groups(
        call.actor, wanted, offset=offset, limit=limit, with_members=wants_members(sent)
    )
    return _show_page(sent, total, [resources.show_group(each, call.base_url) for each in found], Group)


@_endpoint
def create_group(call: _Call) -> Response:
    """Create a group."""
    sent = Group.model_validate(read_body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
    created = provisioned_groups.provision_group(
        call.actor,
        sent.display_name or "",
        external_id=sent.external_id,
        members=[member.value or "" for member in sent.members or ()],
    )
    return _show(resources.show_group(created, call.base_url), 201)


@_endpoint
def show_group(call: _Call, group_id: str) -> Response:
    """Return a group."""
    return _show_group(call, group_id)


def _show_group(call: _Call, group_id: str) -> Response:
    found = provisioned_groups.get_provisioned_group(
        call.actor, group_id, with_members=wants_members(read_parameters(Group))
    )
    return _show(resources.show_group(found, call.base_url))


@_endpoint
def replace_group(call: _Call, group_id: str) -> Response:
    """Replace the name and the members of a group."""
    sent = Group.model_validate(read_body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
    members = [member.value or "" for member in sent.members or ()]
    before = provisioned_groups.get_provisioned_group(call.actor, group_id, with_members=False)
    provisioned_groups.update_provisioned_group(
        call.actor,
        group_id,
        name=sent.display_name,
        external_id=sent.external_id or before.external_id,
        members=provisioned_groups.MemberChange(added=members, all_others=True),
        expected_version=expected_version(),
    )
    return _show_group(call, group_id)


@_endpoint
def patch_group(call: _Call, group_id: str) -> Response:
    """Change a group. Without ``attributes``, the response is empty, because a group may have many members."""
    others, members = split_patch(read_patch(Group))

    def attempt(expected: frozenset[int] | None) -> Response:
        found = provisioned_groups.get_provisioned_group(call.actor, group_id, with_members=False)
        after = resources.show_group(found, call.base_url)
        if others is not None:
            others.patch(after)
        provisioned_groups.update_provisioned_group(
            call.actor,
            group_id,
            name=after.display_name,
            external_id=after.external_id,
            members=members,
            expected_version=expected or frozenset({found.group.version}),
        )
        return _show_group(call, group_id) if "attributes" in request.args else respond(None, 204)

    return _repeat_if_changed(attempt)


@_endpoint
def delete_group(call: _Call, group_id: str) -> Response:
    """Delete a group."""
    provisioned_groups.delete_provisioned_group(call.actor, group_id, expected_version=expected_version())
    return respond(None, 204)


def _repeat_if_changed(attempt: Callable[[frozenset[int] | None], Response]) -> Response:
    """Return the response of a change. Unless the caller expects a version, it is repeated when another comes first."""
    expected = expected_version()
    for _ in range(_ATTEMPTS):
        try:
            return attempt(expected)
        except (PreconditionFailed, Conflict) as error:
            if expected is not None or error.code not in {PreconditionFailed.code, "busy"}:
                raise
    raise Busy("This was changed by several other requests at the same time. Send it again.")


def _show(resource: Any, status: int = 200) -> Response:
    """Return the response of one resource, with the attributes that the caller asks for."""
    parameters = read_parameters(type(resource)) if isinstance(resource, (User, Group)) else None
    content = resource.model_dump(scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=parameters)
    headers = {}
    if resource.meta is not None and resource.meta.version is not None:
        headers["ETag"] = resource.meta.version
    if status == 201:
        headers["Location"] = resource.meta.location
    return respond(content, status, headers)


def _show_page(
    sent: SearchRequest[Any], total: int, found: list[Any], model: type[Resource[Any]]
) -> Response:
    page = ListResponse[model](  # type: ignore[valid-type]
        total_results=total,
        start_index=sent.start_index or 1,
        items_per_page=len(found),
        resources=found,
    )
    return respond(page.model_dump(scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=sent))


def _show_all(found: list[Any]) -> Response:
    return _show_page(SearchRequest(), len(found), found, type(found[0]))


def _show_named(known: Mapping[str, Any], name: str) -> Response:
    if name not in known:
        return scim_error(404, "There is no such resource.")
    return _show(known[name])
