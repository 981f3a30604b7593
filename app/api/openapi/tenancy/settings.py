"""OpenAPI: the settings document, its schemas drawn from the same table that checks it."""

from __future__ import annotations

from typing import Any

from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    success,
    text,
)
from app.rules.organizations.settings import MAX_ROLES, ROLES_PATH
from app.rules.organizations.settings_effects import describe_setting
from app.rules.organizations.settings_table import ROLE_FIELDS, SETTINGS

_ROLE_KEY = "^[a-z][a-z0-9_-]{0,39}$"


def _tree(leaf: Any, roles: Schema, *, whole: bool) -> Schema:
    """The nested object of all settings; ``leaf`` makes the schema of one, ``whole`` says that none is left out."""
    root: dict[str, Any] = {}
    for path, setting in SETTINGS.items():
        _put(root, path, leaf(setting))
    _put(root, ROLES_PATH, roles)
    return _as_schema(root, whole=whole)


def _put(node: dict[str, Any], path: str, schema: Schema) -> None:
    *sections, last = path.split(".")
    for section in sections:
        node = node.setdefault(section, {})
    node[last] = _Leaf(schema)


class _Leaf(dict[str, Any]):
    """A finished schema among sections that are still to become one."""


def _as_schema(node: dict[str, Any], *, whole: bool) -> Schema:
    if isinstance(node, _Leaf):
        return dict(node)
    properties = {name: _as_schema(child, whole=whole) for name, child in node.items()}
    return closed(properties, optional=() if whole else properties)


def _effective(setting: Any) -> Schema:
    schema = setting.kind.schema() | {"description": describe_setting(setting.path, setting.description)}
    return nullable(schema) if setting.default is None else schema


def _change(setting: Any) -> Schema:
    return nullable(setting.kind.schema()) | {
        "description": describe_setting(setting.path, setting.description)
    }


_ROLE_PROPERTIES = {name: kind.schema() for name, kind in ROLE_FIELDS.items()}
_ROLE = closed(
    {"name": text(), "description": text(), "permissions": array(text())},
    optional=("name", "description"),
)
_ROLE_CHANGE = closed(
    {name: nullable(schema) for name, schema in _ROLE_PROPERTIES.items()}, optional=_ROLE_PROPERTIES
)

SCHEMAS: Schema = {
    "Settings": _tree(_effective, {"type": "object", "additionalProperties": _ROLE}, whole=True),
    "SettingsChange": _tree(
        _change,
        {
            "type": "object",
            "propertyNames": {"pattern": _ROLE_KEY, "not": {"const": "admin"}},
            "additionalProperties": nullable(_ROLE_CHANGE),
            "maxProperties": MAX_ROLES,
        },
        whole=False,
    ),
    "SettingsMeta": closed(
        {
            "version": {"type": "integer"},
            "updated_at": nullable(moment()),
            "updated_by": nullable(text()),
            "overridden": array(text(), "The paths that the organization set."),
            "limited": array(
                text(), "The paths at which a ceiling of the instance keeps it from what it would have."
            ),
            "limits": {
                "type": "object",
                "description": "What values may be: the bounds of each number, and the values of a choice that a "
                "ceiling narrows.",
                "additionalProperties": closed(
                    {
                        "min": {"type": "integer"},
                        "max": {"type": "integer"},
                        "allowed": array({"type": ["string", "boolean"]}),
                    },
                    optional=("min", "max", "allowed"),
                ),
            },
            "changed": array(text()),
            "warnings": array(text(), "Changed paths that nothing follows from in this release."),
            "impact": closed(
                {
                    "users_without_second_factor": {"type": "integer"},
                    "sessions_ending": {"type": "integer"},
                    "clients_affected": {"type": "integer"},
                    "secrets_wiped": {"type": "integer"},
                }
            ),
        },
        optional=("changed", "warnings", "impact"),
    ),
}
_ANSWER = answer("The effective document.", success(ref("Settings"), ref("SettingsMeta")), headers=("ETag",))
DRY_RUN = query_parameter(
    "dry_run", {"type": "boolean", "default": False}, "Check and count; change nothing."
)
_IMAGE: Schema = {"schema": {"type": "string", "format": "binary", "minLength": 1, "maxLength": 1024 * 1024}}


def _set_logo() -> Schema:
    made = operation(
        "setLogo",
        "Set the logo",
        tag="Settings",
        scope="settings:write",
        description="The body is the image: PNG, JPEG or WebP, at most 1 MiB and four million pixels. It is made anew "
        "as a PNG of at most 256 by 256 pixels and stands on sign-in, consent and the other pages that people see, on "
        "white. `branding.logo` of the settings is its address here.",
        parameters=("IfMatch",),
        answers={"200": _ANSWER},
        extra=("408", "409", "413", "415"),
    )
    kinds = ("image/png", "image/jpeg", "image/webp")
    return made | {"requestBody": {"required": True, "content": dict.fromkeys(kinds, _IMAGE)}}


PATHS: Schema = {
    "/organizations/{id}/settings": path_item(
        ("OrganizationId",),
        get=operation(
            "getSettings",
            "Read the settings",
            tag="Settings",
            scope="settings:read",
            description="The defaults with what the organization set laid over them.",
            answers={"200": _ANSWER},
        ),
        put=operation(
            "updateSettings",
            "Update the settings",
            tag="Settings",
            scope="settings:write",
            description="Fields sent are replaced, fields left out stay, null returns to the default. "
            "What would lock people out is refused: 409 `would_lock_out`. What the instance does not allow is "
            "refused: 400 `beyond_ceiling`. A length of time that is made shorter counts at once for what stands, one "
            "that is made longer for what is made from then on; access tokens, ID tokens and secrets end as they "
            "were told. A setting that has no effect yet is stored, with a line in `meta.warnings`.",
            parameters=("IfMatch",),
            query=(DRY_RUN,),
            body=ref("SettingsChange"),
            answers={"200": _ANSWER},
            extra=("409",),
        ),
    ),
    "/organizations/{id}/logo": path_item(
        ("OrganizationId",),
        put=_set_logo(),
        delete=operation(
            "removeLogo",
            "Remove the logo",
            tag="Settings",
            scope="settings:write",
            description="As setting `branding.logo` to null: the organization's initials stand on its pages.",
            parameters=("IfMatch",),
            answers={"200": _ANSWER},
            extra=("409",),
        ),
    ),
}
