"""The endpoints of SCIM (RFC 7644 section 3)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from flask import Response, request
from msgspec import Struct
from pydantic import ValidationError
from scim2_models import (
    Context,
    Error,
    InvalidFilterException,
    InvalidPathException,
    ListResponse,
    PatchOp,
    Resource,
    ResponseParameters,
    SCIMException,
    ScimPolicy,
    SearchRequest,
)
from scim2_models.path import CompareOperator, Comparison, LogicalExpr, LogicalOperator, ValuePath

from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.identity_providers import scim_url_of
from app.operations.sign_in.provisioning_tokens import authenticate_provisioning
from app.operations.store.audit import actor_public_id
from app.operations.users import provisioned_groups, provisioning
from app.operations.users.provisioned_groups import GroupSearch
from app.operations.users.provisioning import UserSearch
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput, PreconditionFailed
from app.rules.strict_json import has_surrogate, load_object
from app.scim import resources
from app.scim.errors import MEDIA_TYPE, respond, scim_error
from app.scim.member_changes import split_patch
from app.scim.resources import MAX_RESULTS, EnterpriseUser, Group, User
from app.web.json_api import UnsupportedMediaType, expected_version
from app.web.request_log import note, request_id

MAX_BODY_BYTES = 256 * 1024
MAX_EXPRESSION_LENGTH = 1000
MAX_USER_PATCH_SIZE = 100
"""Operations on a user and values in them: the library copies and compares all values for each operation."""
MAX_GROUP_OPERATIONS = 1000
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
            errors = Error.from_validation_errors(error)
            detail = ". ".join(each.detail for each in errors if each.detail)
            return scim_error(errors[0].status or 400, detail, errors[0].scim_type)
        except SCIMException as error:
            return scim_error(error.status, error.detail, error.scim_type)

    return run


@_endpoint
def show_configuration(call: _Call) -> Response:
    """Return what is supported."""
    return _show(resources.configuration(call.base_url))


@_endpoint
def list_resource_types(call: _Call) -> Response:
    """List the types of resources."""
    return _show_all(list(resources.resource_types(call.base_url).values()))


@_endpoint
def show_resource_type(call: _Call, name: str) -> Response:
    """Return a type of resources."""
    return _show_named(resources.resource_types(call.base_url), name)


@_endpoint
def list_schemas(call: _Call) -> Response:
    """List the schemas."""
    return _show_all(list(resources.schemas(call.base_url).values()))


@_endpoint
def show_schema(call: _Call, name: str) -> Response:
    """Return a schema."""
    return _show_named(resources.schemas(call.base_url), name)


@_endpoint
def list_users(call: _Call) -> Response:
    """List users, those of a filter if there is one."""
    return _list_users(call, _search(EnterpriseUser, request.args.to_dict()))


@_endpoint
def search_users(call: _Call) -> Response:
    """List users as ``list_users`` does, with the parameters in the body."""
    return _list_users(call, _search(EnterpriseUser, _body()))


def _list_users(call: _Call, sent: SearchRequest[EnterpriseUser]) -> Response:
    wanted = UserSearch(
        **_equalities(
            sent,
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
    offset, limit = _range(sent)
    total, found = provisioning.list_provisioned_users(call.actor, wanted, offset=offset, limit=limit)
    return _show_page(
        sent, total, [resources.show_user(each, call.base_url) for each in found], EnterpriseUser
    )


@_endpoint
def create_user(call: _Call) -> Response:
    """Create a user."""
    sent = EnterpriseUser.model_validate(_body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
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
    sent = EnterpriseUser.model_validate(_body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)

    def replace(before: EnterpriseUser) -> EnterpriseUser:
        # What is left out is removed, but not this: the provider would no longer find the user.
        return sent.model_copy(update={"external_id": sent.external_id or before.external_id})

    return _change_user(call, user_id, replace)


@_endpoint
def patch_user(call: _Call, user_id: str) -> Response:
    """Change attributes of a user."""
    patch = _patch(EnterpriseUser)

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
    return _list_groups(call, _search(Group, request.args.to_dict()))


@_endpoint
def search_groups(call: _Call) -> Response:
    """List groups as ``list_groups`` does, with the parameters in the body."""
    return _list_groups(call, _search(Group, _body()))


def _list_groups(call: _Call, sent: SearchRequest[Group]) -> Response:
    wanted = GroupSearch(
        **_equalities(sent, {"id": "group_id", "displayname": "name", "externalid": "external_id"})
    )
    offset, limit = _range(sent)
    total, found = provisioned_groups.list_provisioned_groups(
        call.actor, wanted, offset=offset, limit=limit, with_members=_wants_members(sent)
    )
    return _show_page(sent, total, [resources.show_group(each, call.base_url) for each in found], Group)


@_endpoint
def create_group(call: _Call) -> Response:
    """Create a group."""
    sent = Group.model_validate(_body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
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
        call.actor, group_id, with_members=_wants_members(_parameters(Group))
    )
    return _show(resources.show_group(found, call.base_url))


@_endpoint
def replace_group(call: _Call, group_id: str) -> Response:
    """Replace the name and the members of a group."""
    sent = Group.model_validate(_body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
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
    others, members = split_patch(_patch(Group))

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
    raise Conflict("This was changed by several other requests at the same time. Send it again.", code="busy")


def _body() -> dict[str, Any]:
    """Return the JSON object in the request's body. Raises UnsupportedMediaType, InvalidJson, and 413."""
    if request.mimetype not in {MEDIA_TYPE, "application/json"}:
        raise UnsupportedMediaType(f"Send the request body as {MEDIA_TYPE}.")
    request.max_content_length = MAX_BODY_BYTES
    return load_object(request.get_data())


def _patch(model: type[Any]) -> PatchOp[Any]:
    """Return the operations in the body, without the ``id`` that Okta adds when it renames a group."""
    body = _body()
    sent = body.get("Operations")
    operations = sent if isinstance(sent, list) else []
    # The members of a group are counted by the size of the body.
    is_of_user = model is EnterpriseUser
    limit = MAX_USER_PATCH_SIZE if is_of_user else MAX_GROUP_OPERATIONS
    if (_count_values(operations) if is_of_user else len(operations)) > limit:
        raise InvalidInput(f"Send at most {limit} operations and values at a time.", field="Operations")
    for operation in operations:
        if isinstance(operation, dict) and _is_too_long(operation.get("path")):
            raise InvalidPathException(detail=f"Use at most {MAX_EXPRESSION_LENGTH} characters in a path.")
        if (
            isinstance(operation, dict)
            and isinstance(operation.get("value"), dict)
            and not operation.get("path")
        ):
            operation["value"].pop("id", None)
    patch: PatchOp[Any] = PatchOp[model].model_validate(body, scim_ctx=Context.RESOURCE_PATCH_REQUEST)  # type: ignore[valid-type]
    return patch


def _count_values(value: Any) -> int:
    """Return how many values all lists within a JSON value have."""
    if isinstance(value, list):
        return len(value) + sum(_count_values(each) for each in value)
    return sum(_count_values(each) for each in value.values()) if isinstance(value, dict) else 0


def _is_too_long(expression: Any) -> bool:
    return isinstance(expression, str) and len(expression) > MAX_EXPRESSION_LENGTH


def _search(model: type[Any], sent: Mapping[str, Any]) -> SearchRequest[Any]:
    if _is_too_long(sent.get("filter")):
        raise InvalidFilterException(detail=f"Use at most {MAX_EXPRESSION_LENGTH} characters in a filter.")
    found: SearchRequest[Any] = SearchRequest[model].model_validate(  # type: ignore[valid-type]
        dict(sent), scim_ctx=Context.SEARCH_REQUEST
    )
    return found


def _parameters(model: type[Any]) -> ResponseParameters[Any]:
    """Return which attributes the caller asks for."""
    names = ("attributes", "excludedAttributes")
    return _search(model, {name: request.args[name] for name in names if name in request.args})


def _wants_members(parameters: ResponseParameters[Any]) -> bool:
    wanted = [str(each).lower() for each in parameters.attributes or ()]
    unwanted = [str(each).lower() for each in parameters.excluded_attributes or ()]
    return "members" not in unwanted and (not wanted or any(each.startswith("members") for each in wanted))


def _range(sent: SearchRequest[Any]) -> tuple[int, int]:
    """Return offset and limit of a list (RFC 7644 section 3.4.2.4)."""
    count = MAX_RESULTS if sent.count is None else sent.count
    offset = (sent.start_index or 1) - 1
    if offset > 2**31:
        raise InvalidInput("There are not that many resources.", field="startIndex", code="out_of_range")
    return offset, min(count, MAX_RESULTS)


def _equalities(sent: SearchRequest[Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a filter of comparisons with ``eq`` that are joined by ``and``.

    ``known`` maps attributes in lower case to the names in the result. Raises InvalidFilterException for others.
    """
    found: dict[str, Any] = {}
    if sent.filter is None:
        return found
    for attribute, value in _comparisons(sent.filter.ast):
        name = known.get(attribute)
        if not isinstance(value, bool) and (not isinstance(value, str) or has_surrogate(value)):
            raise InvalidFilterException(detail="Compare with a string, true or false.")
        if name is None or found.get(name, value) != value:
            raise _unsupported_filter()
        found[name] = value
    return found


def _comparisons(node: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(node, LogicalExpr) and node.op == LogicalOperator.and_:
        return [each for term in node.terms for each in _comparisons(term, prefix)]
    if isinstance(node, ValuePath) and node.sub_attr is None:
        inside = _comparisons(node.val_filter, f"{node.attr_path.attr.lower()}.")
        # The one email of a user has the type "work".
        return [each for each in inside if each != ("emails.type", "work")]
    if isinstance(node, Comparison) and node.op == CompareOperator.eq and node.attr_path.uri is None:
        parts = (node.attr_path.attr, node.attr_path.sub_attr)
        return [(prefix + ".".join(part.lower() for part in parts if part), node.value)]
    raise _unsupported_filter()


def _unsupported_filter() -> SCIMException:
    return InvalidFilterException(
        detail="Join comparisons with eq by and. Users have userName, externalId, id, emails.value and active, groups"
        " displayName, externalId and id."
    )


def _show(resource: Any, status: int = 200) -> Response:
    """Return the response of one resource, with the attributes that the caller asks for."""
    parameters = _parameters(type(resource)) if isinstance(resource, (User, Group)) else None
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
