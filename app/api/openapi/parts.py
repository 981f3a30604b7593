"""Parts that every operation of the OpenAPI document is put together from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Schema = dict[str, Any]

REFUSALS: Mapping[str, tuple[str, str]] = {
    "400": ("BadRequest", "Something in the request is wrong; `errors` names every wrong field."),
    "401": (
        "Unauthorized",
        "No token, one that is not valid for this API, or a sign-in too long ago (RFC 9470).",
    ),
    "403": ("Forbidden", "The token lacks a permission; `required_scope` names it."),
    "404": ("NotFound", "It does not exist, was deleted, or belongs to another organization."),
    "405": ("MethodNotAllowed", "The path answers other methods; `Allow` lists them."),
    "408": ("RequestTimeout", "The body came in too slowly."),
    "409": (
        "Conflict",
        "The state that stands does not allow it, or the Idempotency-Key was used for another body.",
    ),
    "412": ("PreconditionFailed", "It was changed since the version that If-Match names."),
    "413": ("ContentTooLarge", "The body is larger than 64 KiB."),
    "415": ("UnsupportedMediaType", "The body is not application/json."),
    "429": ("TooManyRequests", "A limit is reached; Retry-After says for how long."),
    "500": ("InternalServerError", "A fault of this service; `request_id` finds it in the log."),
    "503": ("ServiceUnavailable", "A passing fault; try again after Retry-After seconds."),
}
_ALWAYS = ("400", "401", "403", "405", "429", "500", "503")
_RETRY_AFTER = ("429", "503")


def ref(name: str) -> Schema:
    """A schema of the components."""
    return {"$ref": f"#/components/schemas/{name}"}


def closed(properties: Mapping[str, Schema], *, optional: Iterable[str] = (), **more: Any) -> Schema:
    """An object with these properties and no others; all but the ``optional`` ones are always there."""
    left_out = frozenset(optional)
    schema: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}
    required = [name for name in properties if name not in left_out]
    return schema | ({"required": required} if required else {})


def request_object(properties: Mapping[str, Schema], *, required: Iterable[str] = (), **more: Any) -> Schema:
    """A body: fields may be left out unless ``required``; unknown ones are refused."""
    schema: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}
    listed = list(required)
    return schema | ({"required": listed} if listed else {})


def text(description: str = "", **more: Any) -> Schema:
    """A string."""
    return {"type": "string", **({"description": description} if description else {}), **more}


def count(description: str = "") -> Schema:
    """A number of things."""
    return {"type": "integer", "minimum": 0, **({"description": description} if description else {})}


def flag(description: str = "") -> Schema:
    """True or false."""
    return {"type": "boolean", **({"description": description} if description else {})}


def array(items: Schema, description: str = "") -> Schema:
    """A list."""
    return {"type": "array", "items": items, **({"description": description} if description else {})}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    if schema.get("type") == "null":
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema and "const" not in schema:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def moment(description: str = "") -> Schema:
    """A time in RFC 3339, UTC."""
    return text(description, format="date-time")


def success(data: Schema, meta: Schema | None = None) -> Schema:
    """The envelope of every answer that is no error."""
    properties: dict[str, Schema] = {"success": {"const": True}, "data": data}
    if meta is not None:
        properties["meta"] = meta
    return closed(properties)


def created(data: Schema, **meta: Schema) -> Schema:
    """The envelope of what a POST made; ``meta`` is left out when there is nothing to say."""
    repeated = {"const": True, "description": "The Idempotency-Key was used before; secrets are left out."}
    schema = success(data, closed({**meta, "repeated": repeated}, optional=(*meta, "repeated")))
    schema["required"] = ["success", "data"]
    return schema


def page(item: Schema) -> Schema:
    """The envelope of a list."""
    cursor = nullable(text("Pass it as `cursor` for the next page; null on the last one."))
    return success({"type": "array", "items": item, "maxItems": 100}, closed({"next_cursor": cursor}))


def json_content(schema: Schema) -> Schema:
    """A JSON body."""
    return {"application/json": {"schema": schema}}


def answer(description: str, schema: Schema, *, headers: Iterable[str] = ()) -> Schema:
    """A response; X-Request-Id is on each."""
    return {
        "description": description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", *headers)},
        "content": json_content(schema),
    }


def listed(description: str, item: str) -> Schema:
    """The answers of a list: a page of what the schema ``item`` describes."""
    return {"200": answer(description, page(ref(item)))}


def shown(description: str, item: str, *, etag: bool = False) -> Schema:
    """The answers that hold one ``item``: as it stands, or as it ended."""
    return {"200": answer(description, success(ref(item)), headers=("ETag",) if etag else ())}


def made(description: str, item: str, **meta: Schema) -> Schema:
    """The answers of a POST that makes an ``item``."""
    return {"201": answer(description, created(ref(item), **meta), headers=("Location", "ETag"))}


def changed(description: str, item: str, **meta: Schema) -> Schema:
    """The answers of a PUT: the ``item``, and which of its fields changed; ``meta`` is there when there is need."""
    told = closed({"changed": array(text(), "The fields that changed."), **meta}, optional=meta)
    return {"200": answer(description, success(ref(item), told), headers=("ETag",))}


def refusals(*statuses: str) -> Schema:
    """The documented refusals: those that any operation may give, and the ones named."""
    return {
        status: {"$ref": f"#/components/responses/{REFUSALS[status][0]}"}
        for status in sorted({*_ALWAYS, *statuses})
    }


def operation(
    operation_id: str,
    summary: str,
    *,
    tag: str,
    scope: str | None,
    answers: Mapping[str, Schema],
    description: str = "",
    body: Schema | None = None,
    is_body_optional: bool = False,
    parameters: Iterable[str] = (),
    query: Iterable[Schema] = (),
    extra: Iterable[str] = (),
    is_always_there: bool = False,
    security: list[dict[str, list[str]]] | None = None,
) -> Schema:
    """One operation: its scope, parameters by component name, body, answers, and the refusals that go with these.

    What it names may be missing, unless it ``is_always_there``; ``extra`` are refusals that nothing else here tells of.
    """
    named = tuple(parameters)
    also = [*extra, *(() if is_always_there else ("404",))]
    if body is not None:
        also += ["413", "415"]
    if "IfMatch" in named:
        also.append("412")
    if "IdempotencyKey" in named:
        also.append("409")
    needs = f"Needs the scope `{scope}`." if scope else ""
    result: Schema = {
        "operationId": operation_id,
        "summary": summary,
        "tags": [tag],
        "description": " ".join(part for part in (description, needs) if part),
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in named] + list(query),
        "responses": {**answers, **refusals(*also)},
        "security": security if security is not None else [{"bearer": [scope] if scope else []}],
    }
    if body is not None:
        result["requestBody"] = {"required": not is_body_optional, "content": json_content(body)}
    return result


def path_item(parameters: Iterable[str], **operations: Schema) -> Schema:
    """A path with the parameters that its methods share."""
    shared = [{"$ref": f"#/components/parameters/{name}"} for name in parameters]
    return ({"parameters": shared} if shared else {}) | operations


def query_parameter(name: str, schema: Schema, description: str) -> Schema:
    """A query parameter of one operation."""
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def error_responses() -> Schema:
    """The components that ``refusals`` refers to."""
    return {
        name: answer(description, ref("Error"), headers=("Retry-After",) if status in _RETRY_AFTER else ())
        for status, (name, description) in REFUSALS.items()
    }
