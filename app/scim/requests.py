"""Reading requests of SCIM: JSON bodies, PATCH operations, filters, pages, and the attributes to return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import request
from scim2_models import (
    Context,
    InvalidFilterException,
    InvalidPathException,
    PatchOp,
    ResponseParameters,
    SCIMException,
    SearchRequest,
)
from scim2_models.path import CompareOperator, Comparison, LogicalExpr, LogicalOperator, ValuePath

from app.rules.errors import InvalidInput
from app.rules.strict_json import has_surrogate, load_object
from app.scim.errors import MEDIA_TYPE
from app.scim.member_changes import is_members
from app.scim.resources import MAX_RESULTS, EnterpriseUser
from app.web.json_api import UnsupportedMediaType

MAX_BODY_BYTES = 256 * 1024
MAX_EXPRESSION_LENGTH = 1000
MAX_USER_PATCH_SIZE = 100
"""Operations on a user and values in them: the library copies and compares all values for each operation."""
MAX_GROUP_OPERATIONS = 1000
_BOOLEANS = {"true": True, "false": False}


def read_body() -> dict[str, Any]:
    """Return the JSON object in the request's body. Raises UnsupportedMediaType, InvalidJson, and 413."""
    if request.mimetype not in {MEDIA_TYPE, "application/json"}:
        raise UnsupportedMediaType(f"Send the request body as {MEDIA_TYPE}.")
    request.max_content_length = MAX_BODY_BYTES
    return load_object(request.get_data())


def read_patch(model: type[Any]) -> PatchOp[Any]:
    """Return the operations in the body, without the ``id`` that Okta adds when it renames a group.

    Raises InvalidInput, InvalidPathException and ValidationError.
    """
    body = read_body()
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


def read_search(model: type[Any], sent: Mapping[str, Any]) -> SearchRequest[Any]:
    """Return the parameters of a list. Raises InvalidFilterException, and pydantic's ValidationError."""
    if _is_too_long(sent.get("filter")):
        raise InvalidFilterException(detail=f"Use at most {MAX_EXPRESSION_LENGTH} characters in a filter.")
    found: SearchRequest[Any] = SearchRequest[model].model_validate(  # type: ignore[valid-type]
        dict(sent), scim_ctx=Context.SEARCH_REQUEST
    )
    return found


def read_parameters(model: type[Any]) -> ResponseParameters[Any]:
    """Return which attributes the caller asks for."""
    names = ("attributes", "excludedAttributes")
    return read_search(model, {name: request.args[name] for name in names if name in request.args})


def wants_members(parameters: ResponseParameters[Any]) -> bool:
    """Return whether the response has the members of a group, by any of their names (RFC 7644 section 3.10)."""
    wanted, unwanted = parameters.attributes or (), parameters.excluded_attributes or ()
    if any(is_members(path.attr, path.schema) for path in unwanted):
        return False
    return not wanted or any(is_members(path.parts[0], path.schema) for path in wanted)


def range_of(sent: SearchRequest[Any]) -> tuple[int, int]:
    """Return offset and limit of a list (RFC 7644 section 3.4.2.4)."""
    count = MAX_RESULTS if sent.count is None else sent.count
    offset = (sent.start_index or 1) - 1
    if offset > 2**31:
        raise InvalidInput("There are not that many resources.", field="startIndex", code="out_of_range")
    return offset, min(count, MAX_RESULTS)


def compared_values(sent: SearchRequest[Any], schema: str, known: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a filter of comparisons with ``eq`` that are joined by ``and``, that of ``active`` as bool.

    ``known`` maps attributes in lower case to the names in the result; each may begin with the ``schema`` (RFC 7644
    section 3.10). Raises InvalidFilterException for others.
    """
    found: dict[str, Any] = {}
    if sent.filter is None:
        return found
    for path, value in _comparisons(sent.filter.ast):
        attribute = path.removeprefix(f"{schema.lower()}:")
        name = known.get(attribute)
        if attribute == "active" and isinstance(value, str):
            # As Microsoft Entra writes booleans.
            value = _BOOLEANS.get(value.lower())
        if not isinstance(value, bool) and (not isinstance(value, str) or has_surrogate(value)):
            raise InvalidFilterException(detail="Compare with a string, active with true or false.")
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
    if isinstance(node, Comparison) and node.op == CompareOperator.eq:
        path = node.attr_path
        schema = f"{path.uri}:" if path.uri else ""
        name = ".".join(part for part in (path.attr, path.sub_attr) if part)
        return [(prefix + f"{schema}{name}".lower(), node.value)]
    raise _unsupported_filter()


def _unsupported_filter() -> SCIMException:
    return InvalidFilterException(
        detail="Join comparisons with eq by and. Users have userName, externalId, id, emails.value and active, groups"
        " displayName, externalId and id."
    )
