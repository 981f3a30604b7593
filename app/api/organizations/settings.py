"""Settings and logo of an organization. The table of settings is the source of their schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated

from flask import Response, request

from app.api.endpoints import (
    Body,
    Endpoints,
    JsonSchema,
    boolean_query,
    component,
    nullable,
    pascal_case,
    reference,
)
from app.api.organizations.roles import ROLE_KEY
from app.api.representations import Representation, Source, optional
from app.operations.organizations import branding, settings
from app.operations.organizations.settings import SettingsRecord, UpdatedSettings
from app.rules.organizations.settings import MAX_ROLES, ROLES_PATH
from app.rules.organizations.settings_table import SETTINGS, RoleChange, RoleFields, Setting
from app.rules.shapes import SchemaOnly, create_shape, described
from app.web.bearer import ApiContext, authenticate_again
from app.web.json_api import UnsupportedMediaType, boolean_parameter, envelope, expected_version
from app.web.request_bodies import read_body

endpoints = Endpoints("Settings", "settings")
DRY_RUN = boolean_query("dry_run", "Validate the change and report its impact without applying it.")
_IMAGE_TYPES = tuple(f"image/{name.lower()}" for name in branding.LOGO_FORMATS)
_CHOICE: JsonSchema = {
    "description": "A value of a setting that is not a number.",
    "anyOf": [{"type": "string"}, {"type": "boolean"}],
}
_IMAGE: JsonSchema = {
    "type": "string",
    "format": "binary",
    "minLength": 1,
    "maxLength": branding.MAX_LOGO_BYTES,
}


class SettingLimit(Representation):
    """The values that a setting may have: the bounds of a number, or the choices that the instance allows."""

    min: Annotated[int, described("The smallest value that the instance allows. Only of numbers.")] = (
        optional()
    )
    max: Annotated[int, described("The largest value that the instance allows. Only of numbers.")] = (
        optional()
    )
    allowed: Annotated[
        list[Annotated[str | bool, SchemaOnly(**component("SettingChoice", _CHOICE))]],
        described("The values that the instance allows. Not of numbers."),
    ] = optional()


class SettingsImpact(Representation):
    """The consequences of a change of the settings."""

    users_without_second_factor: Annotated[int, described("Users who would have to set up a second factor.")]
    sessions_terminated: Annotated[int, Source("sessions_ending"), described("Sessions that would end.")]
    clients_affected: Annotated[int, described("Clients that would behave differently.")]
    secrets_deleted: Annotated[
        int, Source("secrets_wiped"), described("Stored secrets that could no longer be viewed.")
    ]


class VersionMeta(Representation):
    """Metadata of settings and limits, which one document holds."""

    version: Annotated[int, described("The number of the version, as in the ETag.")]
    updated_at: Annotated[datetime | None, described("When they were last changed. Null if they never were.")]
    updated_by: Annotated[
        str | None,
        described(
            "The email address or name of the user or client who last changed them, or the ID of a user who was "
            "deleted since. Null if they were never changed."
        ),
    ]


class SettingsMeta(VersionMeta):
    """Metadata of the settings."""

    overridden: Annotated[list[str], described("The paths that the organization set.")]
    limited: Annotated[
        list[str], described("The paths whose value is restricted by a limit of the instance.")
    ]
    limits: Annotated[dict[str, SettingLimit], described("What the instance allows, by path of a setting.")]
    changed: Annotated[list[str], described("The paths that changed. Only in responses to changes.")] = (
        optional()
    )
    warnings: Annotated[list[str], described("Changed paths that have no effect in this release.")] = (
        optional()
    )
    impact: Annotated[SettingsImpact, described("Only for a dry run.")] = optional()


_SECTIONS = {
    "authentication": "How users sign in and register.",
    "authentication.password": "Requirements of new passwords.",
    "authentication.mfa": "Second factors.",
    "authentication.passkeys": "Passkeys (WebAuthn).",
    "authentication.lockout": "Delays after failed sign-ins.",
    "authentication.sessions": "The lifetime and number of sessions.",
    "authentication.registration": "How users join the organization.",
    "authentication.recovery": "How users set a new password.",
    "oauth": "Clients and tokens.",
    "oauth.access_token": "Access tokens.",
    "oauth.refresh_token": "Refresh tokens.",
    "oauth.consent": "When users are asked, and what they may allow.",
    "oauth.redirect_uris": "The redirect URIs that clients can register.",
    "oauth.clients": "Client secrets and client authentication.",
    "oauth.dynamic_registration": "Clients that register themselves (RFC 7591).",
    "oauth.signing": "Signing keys.",
    "management_api": "Access to this API.",
    "user_permissions": "What members and administrators may do.",
    "user_profile": "What is stored about users.",
    "branding": "How pages and emails look.",
    "localization": "Languages.",
    "limits": "What the organization may use. Only administrators of the instance can change it.",
    "audit": "The audit log and other logs.",
}


SettingsRole = create_shape(
    "SettingsRole", RoleFields, required=("permissions",), not_null=("name", "description")
)


def _settings_schema() -> JsonSchema:
    roles = {"type": "object", "additionalProperties": reference(SettingsRole.__name__)}

    def schema(setting: Setting) -> JsonSchema:
        value = setting.kind.schema()
        return value if setting.default is not None else nullable(value)

    about = "All settings of an organization, with defaults and instance limits applied."
    return _document_schema(schema, roles, is_complete=True) | {"description": about}


def _settings_change_schema() -> JsonSchema:
    """Return the schema of a change: every setting may be left out, and null restores its default."""
    roles = {
        "type": "object",
        "propertyNames": {"pattern": ROLE_KEY, "not": {"const": "admin"}},
        "additionalProperties": nullable(reference(RoleChange.__name__)),
        "maxProperties": MAX_ROLES,
    }
    about = "The settings to change. Omitted settings keep their values, and null restores the default."
    changes = _document_schema(lambda setting: nullable(setting.kind.schema()), roles, is_complete=False)
    return changes | {"description": about}


def _document_schema(
    schema_of: Callable[[Setting], JsonSchema], roles: JsonSchema, *, is_complete: bool
) -> JsonSchema:
    leaves = {
        path: schema_of(setting) | {"description": setting.description} for path, setting in SETTINGS.items()
    }
    roles = roles | {"description": "Custom roles for administrators, by ID."}
    return _section({**leaves, ROLES_PATH: roles}, is_complete=is_complete)


def _section(leaves: Mapping[str, JsonSchema], *, is_complete: bool, above: str = "") -> JsonSchema:
    """Return the nested object of all paths: ``{"a.b": schema}`` becomes ``{"a": {"b": schema}}``."""
    children: dict[str, dict[str, JsonSchema]] = {}
    properties: dict[str, JsonSchema] = {}
    for path, schema in leaves.items():
        name, _, rest = path.partition(".")
        if rest:
            children.setdefault(name, {})[rest] = schema
        else:
            properties[name] = schema
    for name, inner in children.items():
        path = f"{above}{name}"
        section = _section(inner, is_complete=is_complete, above=f"{path}.")
        described = section | {"description": _SECTIONS[path]}
        properties[name] = component(
            pascal_case("settings" if is_complete else "settings_change", path), described
        )
    required = {"required": list(properties)} if is_complete else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **required}


SETTINGS_SCHEMA = component("Settings", _settings_schema())
SETTINGS_CHANGE_SCHEMA = component("SettingsChange", _settings_change_schema())


@endpoints.get("/organizations/<slug>/settings", returns=SETTINGS_SCHEMA, meta=SettingsMeta)
def get_settings(context: ApiContext, slug: str) -> object:
    """Get the settings.

    The effective settings: the defaults, overridden by those that the organization set.
    """
    return _response(settings.get_settings(context.actor, slug))


@endpoints.put(
    "/organizations/<slug>/settings",
    query=(DRY_RUN,),
    body=SETTINGS_CHANGE_SCHEMA,
    returns=SETTINGS_SCHEMA,
    meta=SettingsMeta,
)
def update_settings(context: ApiContext, body: Body, slug: str) -> object:
    """Update the settings.

    Fields that are sent are replaced, omitted fields keep their values, and null restores the default. A change that
    would lock users out is rejected: 409 `would_lock_out`. A value beyond a limit of the instance is rejected: 400
    `exceeds_instance_limit`. A shorter duration applies immediately to what exists. A longer one applies only to what
    is created afterwards, except `authentication.sessions.idle_timeout_seconds`: sessions that were idle for less than
    the new one can be used again. Access tokens, ID tokens and secrets keep the expiry that they were issued with. A
    user needs a recent sign-in (RFC 9470) to change `authentication.mfa` or
    `authentication.sessions.reauthentication_seconds`, or to give a role or new users permissions, but not for a dry
    run.
    """
    updated = settings.update_settings(
        context.actor,
        slug,
        body,
        expected_version=expected_version(),
        dry_run=boolean_parameter(context.parameters, "dry_run"),
    )
    return _response(updated.settings, updated)


@endpoints.put(
    "/organizations/<slug>/logo",
    media=dict.fromkeys(_IMAGE_TYPES, _IMAGE),
    returns=SETTINGS_SCHEMA,
    meta=SettingsMeta,
)
def set_logo(context: ApiContext, slug: str) -> object:
    """Set the logo.

    The body is the image: PNG, JPEG or WebP, at most 1 MiB and four million pixels. The service converts it to a PNG
    of at most 256 by 256 pixels and shows it on the sign-in, consent and other pages, on white. The setting
    `branding.logo` contains its URL.
    """
    version = expected_version()
    branding.require_logo_permission(context.actor, slug)
    if request.mimetype not in _IMAGE_TYPES:
        raise UnsupportedMediaType(f"Send the image itself, as one of: {', '.join(_IMAGE_TYPES)}.")
    content = read_body(branding.MAX_LOGO_BYTES)
    actor = authenticate_again(context).actor
    updated = branding.set_logo(actor, slug, content, expected_version=version)
    return _response(updated.settings, updated)


@endpoints.delete(
    "/organizations/<slug>/logo", returns=SETTINGS_SCHEMA, meta=SettingsMeta, etag=True, if_match=True
)
def remove_logo(context: ApiContext, slug: str) -> object:
    """Remove the logo.

    The same as setting `branding.logo` to null. Pages show the organization's initials.
    """
    updated = branding.remove_logo(context.actor, slug, expected_version=expected_version())
    return _response(updated.settings, updated)


def _response(view: SettingsRecord, updated: UpdatedSettings | None = None) -> Response:
    meta = SettingsMeta.to_json(view)
    if updated is not None:
        meta["changed"] = list(updated.changed)
        if updated.warnings:
            meta["warnings"] = list(updated.warnings)
        if updated.impact is not None:
            meta["impact"] = SettingsImpact.to_json(updated.impact)
    return envelope(view.document, meta=meta, version=view.version)
