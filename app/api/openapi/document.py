"""The OpenAPI 3.1 document of all that this service answers to programs."""

from __future__ import annotations

from typing import Any

from app.api.openapi import common, service
from app.api.openapi.evidence import audit_events, failed_requests, leak_reports
from app.api.openapi.oauth import devices, endpoints, interactions, logout, pushed_requests
from app.api.openapi.parts import error_responses
from app.api.openapi.people import registrations, second_factors, user_imports, users
from app.api.openapi.registration import (
    client_requests,
    clients,
    credentials,
    resources,
    rotations,
    self_registration,
)
from app.api.openapi.tenancy import instance, organizations, roles, settings
from app.api.openapi.tokens import consents, grants, revocations, signing_keys, tokens
from app.api.openapi.webhooks import events, webhooks

_DESCRIPTION = """\
Authentication and authorization for many isolated organizations.

The management API answers at the root, as its paths stand here, and under `/api/v1` alike; `POST /api/v1/revoke`
stands there alone. The OAuth endpoints stand at the root, where the client decides the organization, and under each
issuer, `/organizations/{id}`, where the path decides.

Every answer of the management API is `{"success": true, "data": …}` or `{"success": false, "error_code": …, …}`.
Bodies are JSON objects in UTF-8 of at most 64 KiB; unknown fields, duplicate keys and values of another type are
refused with 400, and every wrong field is named at once. In a PUT, fields left out stay and `null` returns to the
default.
"""
_PARTS = (
    clients,
    credentials,
    rotations,
    self_registration,
    resources,
    organizations,
    settings,
    roles,
    instance,
    users,
    user_imports,
    second_factors,
    registrations,
    signing_keys,
    failed_requests,
    audit_events,
    webhooks,
    events,
    leak_reports,
    grants,
    tokens,
    consents,
    client_requests,
    revocations,
    endpoints,
    interactions,
    pushed_requests,
    logout,
    devices,
    service,
)


def document(base_url: str) -> dict[str, Any]:
    """The whole document; ``base_url`` is where this instance answers."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = dict(common.SCHEMAS)
    for part in _PARTS:
        paths |= part.PATHS
        schemas |= part.SCHEMAS
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gatehouse", "version": "1", "description": _DESCRIPTION},
        "servers": [
            {"url": base_url, "description": "The paths as they stand."},
            {"url": f"{base_url}/api/v1", "description": "The management API, the same."},
        ],
        "tags": [{"name": name} for name in _tags(paths)],
        "paths": {path: item | _only_at_the_root(path, base_url) for path, item in paths.items()},
        "webhooks": events.WEBHOOKS,
        "components": {
            "schemas": schemas,
            "parameters": common.PARAMETERS,
            "headers": common.HEADERS,
            "responses": error_responses(),
            "securitySchemes": common.SECURITY,
        },
    }


def is_versioned(path: str) -> bool:
    """Whether the path answers under ``/api/v1`` too: the management API and nothing else."""
    return (
        not path.startswith("/api/")
        and "/oauth/" not in path
        and "/.well-known/" not in path
        and path
        not in {
            "/healthz",
            "/readyz",
        }
    )


def _only_at_the_root(path: str, base_url: str) -> dict[str, Any]:
    return {} if is_versioned(path) else {"servers": [{"url": base_url}]}


def _tags(paths: dict[str, Any]) -> list[str]:
    found = [
        operation["tags"][0]
        for item in paths.values()
        for operation in item.values()
        if isinstance(operation, dict) and "tags" in operation
    ]
    return list(dict.fromkeys(found))
