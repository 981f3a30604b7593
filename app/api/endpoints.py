"""Endpoints of the JSON API: a route, who may call it and how it is documented, declared in one place.

Each decorated view is a route of the API and an operation of the OpenAPI document. The first line of its docstring is
the summary, the rest the description, its name the operationId.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args, get_origin

from flask import Blueprint, Response
from msgspec import Struct, field

from app.operations.store.idempotency import IdempotentResult
from app.operations.store.rows import DEFAULT_LIMIT, MAX_LIMIT, Page, Updated, slice_page
from app.rules.filters import Filter, Filters
from app.rules.shapes import Shape
from app.web.bearer import ACTING, ApiContext, receive_call
from app.web.json_api import (
    blueprint,
    created,
    etag_headers,
    read_object,
    require_no_fields,
    respond,
    run_idempotently,
)
from app.web.pagination import page_meta, requested_page

api = blueprint("api")
# The specification defines POST /api/v1/revoke under this prefix only.
api_v1_only = blueprint("api_v1_only")

View = Callable[..., Any]
Body = dict[str, Any]
Prepare = Callable[[ApiContext, Body], None]
JsonSchema = dict[str, Any]


class Query(Struct, frozen=True):
    """A query parameter."""

    name: str
    schema: JsonSchema
    description: str


class Endpoint(Struct, frozen=True, kw_only=True):
    """One operation of the API.

    ``returns`` is the model of ``data``: a representation, a ``list[…]`` of one, or a schema. ``errors`` are statuses
    that nothing else here implies. ``media`` are the schemas of a request body that is not JSON. ``callbacks`` are
    the requests that this service sends after the call.
    """

    method: str
    path: str
    tag: str
    view: View
    scope: str | None
    returns: Any
    query: Sequence[Query] = ()
    body: type[Shape] | JsonSchema | None = None
    is_body_optional: bool = False
    media: Mapping[str, JsonSchema] = field(default_factory=dict)
    is_page: bool = False
    status: int = 200
    meta: Any = None
    reports_changes: bool = False
    warnings: str = ""
    etag: bool = False
    if_match: bool = False
    is_idempotent: bool = True
    errors: Sequence[int] = ()
    names_organization: bool = True
    security: list[dict[str, list[str]]] | None = None
    response_media: str = "application/json"
    only_v1: bool = False
    callbacks: JsonSchema = field(default_factory=dict)


ENDPOINTS: list[Endpoint] = []


class Shown(Struct, frozen=True):
    """A record, or a list of them, with what it does not say itself.

    ``values`` are fields of the representation that the record does not have, the others parts of ``meta``.
    """

    record: Any
    values: Mapping[str, Any] = field(default_factory=dict)
    changed: Iterable[str] | None = None
    warnings: Sequence[str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


class Endpoints:
    """The endpoints of one tag of the OpenAPI document.

    ``family`` names their scopes, where an endpoint declares none: a GET needs ``<family>:read``, any other method
    ``<family>:write``.

    A view gets the body, if the endpoint has one, and returns what ``returns`` represents: a record, a list, ``Shown``,
    ``Updated``, or a mapping that is JSON already. The response has the ETag of its version. A view may also return an
    IdempotentResult or a whole response.
    """

    def __init__(self, tag: str, family: str = "") -> None:
        self.tag = tag
        self.family = family

    def get(self, path: str, **declared: Any) -> Callable[[View], View]:
        """Declare a GET. Its response has an ETag, unless it is streamed."""
        return self._declare("GET", path, {"etag": "response_media" not in declared} | declared)

    def page(
        self,
        path: str,
        *,
        search: str = "",
        filters: Filters | None = None,
        query: Sequence[Query] = (),
        **declared: Any,
    ) -> Callable[[View], View]:
        """Declare a GET of a list in pages, whose view calls ``show_page``.

        ``search`` describes its parameter ``q``, if it has one.
        """
        found = [Query("q", {"type": "string", "minLength": 1, "maxLength": 1000}, search)] if search else []
        query = (*PAGE, *found, *filter_queries(filters or {}), *query)
        return self.get(path, is_page=True, query=query, **declared)

    def post(
        self, path: str, *, status: int = 201, prepare: Prepare | None = None, **declared: Any
    ) -> Callable[[View], View]:
        """Declare a POST, which creates something and accepts an Idempotency-Key.

        ``prepare`` is called before its view, outside of the transaction. The view of a POST with ``media`` reads its
        body and returns the response.
        """
        return self._declare("POST", path, {"status": status, "etag": status == 201} | declared, prepare)

    def put(self, path: str, **declared: Any) -> Callable[[View], View]:
        """Declare a PUT, which changes an object and reports the changed fields. The change may conflict: 409."""
        changed = {"reports_changes": True, "etag": True, "if_match": True, "errors": (409,)} | declared
        return self._declare("PUT", path, changed)

    def delete(self, path: str, **declared: Any) -> Callable[[View], View]:
        """Declare a DELETE. One that takes If-Match may conflict with others, unless it says ``errors=()``."""
        conflict = (409,) if declared.get("if_match") else ()
        return self._declare("DELETE", path, {"errors": conflict} | declared)

    def _declare(
        self, method: str, path: str, declared: dict[str, Any], prepare: Prepare | None = None
    ) -> Callable[[View], View]:
        def decorate(view: View) -> View:
            derived: dict[str, Any] = {"names_organization": "<slug>" not in path}
            if self.family:
                derived["scope"] = f"{self.family}:{'read' if method == 'GET' else 'write'}"
            endpoint = Endpoint(method=method, path=path, tag=self.tag, view=view, **(derived | declared))
            responding = _responding(endpoint, prepare)
            add_endpoint(endpoint, api, responding)
            return responding

        return decorate


def _responding(endpoint: Endpoint, prepare: Prepare | None) -> Callable[..., Response]:
    """Return the view of an endpoint as one that authenticates the caller, reads the body and returns the response."""
    has_key = endpoint.method == "POST" and endpoint.is_idempotent and not endpoint.media
    has_no_body = endpoint.method != "GET" and endpoint.body is None and not endpoint.media
    parameters = [parameter.name for parameter in endpoint.query]
    if endpoint.names_organization:
        parameters.append(ACTING)

    @functools.wraps(endpoint.view)
    def run(**values: Any) -> Response:
        context = receive_call(parameters)
        sent = () if endpoint.body is None else (read_object(optional=endpoint.is_body_optional),)
        body = sent[0] if sent else {}
        if has_no_body:
            require_no_fields(parameters)
        if prepare is not None:
            prepare(context, body)
        if has_key:
            return run_idempotently(
                context.actor,
                body,
                lambda: _result(endpoint, context, endpoint.view(context, *sent, **values)),
            )
        returned = endpoint.view(context, *sent, **values)
        return returned if isinstance(returned, Response) else respond(_result(endpoint, context, returned))

    return run


def _result(endpoint: Endpoint, context: ApiContext, returned: Any) -> IdempotentResult:
    if isinstance(returned, IdempotentResult):
        return returned
    if isinstance(returned, Updated):
        returned = Shown(returned.record, changed=returned.changed)
    shown = returned if isinstance(returned, Shown) else Shown(returned)
    data = _to_json(endpoint.returns, context, shown)
    meta = {**shown.meta}
    if shown.changed is not None:
        meta["changed"] = list(shown.changed)
    if shown.warnings:
        meta["warnings"] = shown.warnings
    version = getattr(shown.record, "version", None) if endpoint.etag else None
    if endpoint.status == 201:
        return created(data, data["id"], meta=meta, version=version)
    return IdempotentResult(data, endpoint.status, meta, etag_headers(version))


def _to_json(returns: Any, context: ApiContext, shown: Shown) -> Any:
    record = shown.record
    if isinstance(record, Mapping):
        return record
    if isinstance(record, (list, tuple)):
        item = get_args(returns)[0] if get_origin(returns) is list else returns
        return [_to_json(item, context, Shown(one)) for one in record]
    return returns.shown_in(context, record, **shown.values)


def add_endpoint(endpoint: Endpoint, where: Blueprint, view: View) -> None:
    """Add a route and its operation; ``view`` has its own authentication."""
    ENDPOINTS.append(endpoint)
    where.add_url_rule(endpoint.path, endpoint.view.__name__, view, methods=[endpoint.method])


LIMIT = Query(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    "The number of items per page.",
)
CURSOR = Query(
    "cursor",
    {"type": "string", "minLength": 1, "maxLength": 1000},
    "`meta.next_cursor` of the previous page.",
)
PAGE = (LIMIT, CURSOR)


def reference(name: str) -> JsonSchema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_schema(required: Iterable[str] = (), *, closed: bool = False, **properties: Any) -> JsonSchema:
    """Return the schema of an object; a ``closed`` one has no other properties."""
    names = list(required)
    return (
        {"type": "object", "properties": properties}
        | ({"required": names} if names else {})
        | ({"additionalProperties": False} if closed else {})
    )


def component(name: str, schema: JsonSchema) -> JsonSchema:
    """Return a schema that becomes a component of the document, after which generators name their classes.

    It takes the place of a model where none can be declared. ``reference`` refers to it and to models by name.
    """
    return {"component": name, "schema": schema}


def nullable(schema: JsonSchema) -> JsonSchema:
    """Return the schema, or null, in the form that generators understand."""
    if "null" in schema.get("type", ()):
        return schema
    if isinstance(schema.get("type"), str) and not schema.keys() & {"const", "component"}:
        choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return schema | choices | {"type": [schema["type"], "null"]}
    # Generators read the description beside the choice, not in it.
    inner = {name: value for name, value in schema.items() if name != "description"}
    description = schema.get("schema", schema).get("description")
    return {"anyOf": [inner, {"type": "null"}], **({"description": description} if description else {})}


def filter_queries(filters: Filters) -> tuple[Query, ...]:
    """Return the parameters of a list's filters."""
    return tuple(_filter_query(name, declared) for name, declared in filters.items())


def _filter_query(name: str, declared: Filter) -> Query:
    default = {} if declared.default is None else {"default": declared.default}
    return Query(name, {"type": "string"} | declared.check.json_schema() | default, declared.description)


def boolean_query(name: str, description: str) -> Query:
    """Return a parameter that is true or false."""
    return Query(name, {"type": "boolean", "default": False}, description)


def show_page(
    context: ApiContext,
    listing: str,
    read: Callable[..., Page[Any]],
    *subject: str,
    filters: Filters | None = None,
) -> Shown:
    """Return one page of a list.

    ``read`` is the operation that lists, called with the ``subject``, and with the text and the ``filters`` that the
    request sends. ``listing`` names the list and its subject: its cursors are rejected by every other list. Raises
    InvalidInput for an invalid limit or cursor.
    """
    organization_id, sent = context.organization.id, context.parameters
    query = sent.get("q", "").strip()
    options: dict[str, Any] = {"query": query} if query else {}
    if filters is not None:
        options["filters"] = {name: sent[name] for name in filters if name in sent}
    page = read(context.actor, *subject, requested_page(sent, organization_id, listing), **options)
    return Shown(page.items, meta=page_meta(page, sent, organization_id, listing))


def show_page_of(context: ApiContext, listing: str, records: Sequence[Any], key: str) -> Shown:
    """Return one page of a list that is always read as a whole. ``key`` names the attribute that tells records apart.

    Raises InvalidInput for an invalid limit or cursor.
    """
    return show_page(context, listing, lambda _, requested: slice_page(records, key, requested))


def documented_path(path: str) -> str:
    """Return ``/clients/{clientId}`` for ``/clients/<client_id>``."""
    return re.sub(r"<(?:\w+:)?(\w+)>", lambda match: f"{{{documented_name(match[1])}}}", path)


def documented_name(argument: str) -> str:
    """Return the name of a path parameter in the document."""
    return "id" if argument == "slug" else camel_case(argument)


def pascal_case(*names: str) -> str:
    """Return ``SettingsAuditLog`` for ``settings`` and ``audit.log``."""
    return "".join(word.capitalize() for word in re.split(r"[._]", "_".join(names)))


def camel_case(name: str) -> str:
    """Return ``listClients`` for ``list_clients``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
