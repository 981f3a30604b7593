"""APIs (resources) of the organization, their scopes, and the texts that consent shows for a scope."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from flask import request
from werkzeug.wrappers import Response as BaseResponse
from wtforms import (
    BooleanField,
    Form,
    RadioField,
    SelectChoice,
    StringField,
    TextAreaField,
)
from wtforms.validators import InputRequired, Length

from app.operations.clients.access_decisions import preview_access_policy
from app.operations.clients.access_records import count_pending_requests
from app.operations.clients.ownership import find_owner
from app.operations.clients.resource_scopes import (
    MAX_HOLDERS,
    ScopeHolder,
    ScopesInUse,
    delete_scope,
    list_scope_holders,
)
from app.operations.clients.resources import (
    ResourceRecord,
    define_resource,
    delete_resource,
    get_resource,
    list_resource_holders,
    list_resources,
    offers_token_storage,
    update_resource,
)
from app.operations.clients.scopes import (
    ScopeRecord,
    can_delete_scope,
    can_edit_scope,
    get_scope,
    search_scopes,
    update_scope,
)
from app.operations.tokens.introspection import metadata_for
from app.portal.context import Confirmation, PageResponse, PortalContext, portal_page, search_query
from app.portal.labels import ACCESS_POLICIES, TOKEN_STORAGES
from app.portal.ownership import requested_owner
from app.rules.clients.client_types import TOKEN_FORMATS
from app.rules.clients.resource_fields import MAX_SCOPES
from app.rules.clients.resource_indicators import STORED
from app.rules.errors import Conflict, InvalidInput
from app.web.forms import (
    CODE,
    NO_AUTOCOMPLETE,
    NumberField,
    PageForm,
    RowsField,
    TypedConfirmationForm,
    VersionField,
    select_field,
)
from app.web.languages import gettext, lazy_gettext

_EMPTY_ROWS = 3
# Clients that a page names before their number says enough.
_MAX_NAMED = 10


class ScopeRow(Form):
    """One row of the table of scopes; the rules check it together with the others."""

    name = StringField(lazy_gettext("Name"), render_kw={**CODE, "maxlength": 128})
    title = StringField(lazy_gettext("Title"), render_kw={**NO_AUTOCOMPLETE, "maxlength": 200})
    description = StringField(lazy_gettext("Description"), render_kw={**NO_AUTOCOMPLETE, "maxlength": 1000})


class ApiForm(PageForm):
    """An API and its scopes."""

    version = VersionField()
    name = StringField(
        lazy_gettext("Name"),
        [InputRequired(), Length(max=100)],
        description=lazy_gettext("Shown to users on the consent page."),
        render_kw=NO_AUTOCOMPLETE,
    )
    identifier = StringField(
        lazy_gettext("Identifier"),
        [InputRequired(), Length(max=255)],
        description=lazy_gettext(
            "A URI such as https://api.example.com. Clients send it as the resource parameter and tokens"
            " carry it as their audience. You can't change it later."
        ),
        render_kw=CODE,
    )
    description = TextAreaField(
        lazy_gettext("Description"),
        [Length(max=1000)],
        description=lazy_gettext("For you and your colleagues."),
        render_kw={"rows": 2},
    )
    scopes = RowsField(ScopeRow, lazy_gettext("Scopes"), max_rows=MAX_SCOPES + _EMPTY_ROWS)
    confirmed = BooleanField(lazy_gettext("Remove the missing scopes from the clients that have them"))
    access_token_format = select_field(
        lazy_gettext("Access token format"),
        choices={
            "": lazy_gettext("Default of the client or organization"),
            **{name: name for name in TOKEN_FORMATS},
        },
        description=lazy_gettext(
            "Opaque tokens can be revoked instantly. Your API checks them by introspection. JWTs stay valid"
            " until they expire. Your API verifies them itself."
        ),
    )
    access_token_ttl_seconds = NumberField(
        lazy_gettext("Access token lifetime"),
        description=lazy_gettext(
            "In seconds, from 60 to 86400, or up to 3600 for JWTs. Leave empty for the organization's default."
        ),
        render_kw={**NO_AUTOCOMPLETE, "inputmode": "numeric", "maxlength": 6},
    )
    access_token_storage = RadioField(
        lazy_gettext("Revocation of JWTs"),
        choices=[
            SelectChoice(name, label.title, {"help": label.help}) for name, label in TOKEN_STORAGES.items()
        ],
        default="stored",
    )
    access_policy = RadioField(
        lazy_gettext("Client access"),
        choices=[
            SelectChoice(name, label.title, {"help": label.help}) for name, label in ACCESS_POLICIES.items()
        ],
        default="approval",
    )
    policy_confirmed = BooleanField(
        lazy_gettext("Change the client access although these clients lose access")
    )
    is_active = BooleanField(
        lazy_gettext("Active"),
        description=lazy_gettext("No tokens are issued for an inactive API. Its data stays as it is."),
    )

    def values(self) -> dict[str, Any]:
        """Return the fields as the operations take them; rows without a name are dropped."""
        rows = [
            {name: (value or "").strip() or None for name, value in row.items()} for row in self.scopes.data
        ]
        fields = {
            "name": self.name.data,
            "description": self.description.data,
            "access_token_format": self.access_token_format.data or None,
            "access_token_ttl_seconds": self.access_token_ttl_seconds.data,
            "scopes": [row for row in rows if row["name"]],
            "access_policy": self.access_policy.data,
        }
        if "access_token_storage" in self:
            fields["access_token_storage"] = self.access_token_storage.data
        if "identifier" in self:
            return {"identifier": self.identifier.data, **fields}
        return {**fields, "status": "active" if self.is_active.data else "disabled"}


class ScopeForm(PageForm):
    """The title and description of a scope for users."""

    version = VersionField()
    title = StringField(
        lazy_gettext("Title"),
        [Length(max=200)],
        description=lazy_gettext(
            "A verb and an object, such as “Read your calendar”. Without a title, users see the scope's name."
        ),
        render_kw=NO_AUTOCOMPLETE,
    )
    description = StringField(
        lazy_gettext("Description"),
        [Length(max=1000)],
        description=lazy_gettext(
            "What it means for the user, including any risk, such as “Deleted files can't be restored”."
        ),
        render_kw=NO_AUTOCOMPLETE,
    )


@portal_page("/apis", "GET")
def apis(context: PortalContext) -> PageResponse:
    """List the APIs by name; ``q`` searches, ``owner_id`` filters."""
    query = search_query()
    filters, owner_email = requested_owner(context)
    page = list_resources(context.actor, context.page_request(), query=query or None, filters=filters)
    return context.render(
        "portal/apis/list.html",
        page=page,
        query=query,
        owner_id=filters.get("owner_id"),
        owner_email=owner_email,
        is_filtered=bool(query or filters),
        waiting=count_pending_requests(context.actor),
    )


@portal_page("/apis/new", "GET", "POST")
def new_api(context: PortalContext) -> PageResponse:
    """Create an API."""
    context.actor.require_for_own("resources:write")
    form = ApiForm(scopes=[{}] * _EMPTY_ROWS)
    del form.version, form.confirmed, form.policy_confirmed, form.is_active
    if not offers_token_storage(context.actor, STORED):
        del form.access_token_storage
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict):
            made = define_resource(context.actor, form.values())
            return context.done(f"/apis/{made.public_id}", "api-defined")
    return _api_page(context, None, form)


@portal_page("/apis/<api_id>", "GET", "POST")
def api_page(context: PortalContext, api_id: str) -> PageResponse:
    """Show and change an API, and show the metadata that it should publish."""
    api = get_resource(context.actor, api_id)
    rows = [
        {"name": scope.name, "title": scope.title, "description": scope.description} for scope in api.scopes
    ]
    form = ApiForm(
        name=api.name,
        description=api.description,
        access_token_format=api.access_token_format,
        access_token_ttl_seconds=api.access_token_ttl_seconds,
        access_token_storage=api.access_token_storage,
        scopes=[*rows, *[{}] * _EMPTY_ROWS],
        access_policy=api.access_policy,
        is_active=api.status == "active",
        version=api.version,
    )
    del form.identifier
    if not offers_token_storage(context.actor, api.access_token_storage):
        del form.access_token_storage
    asks = False
    losing: list[ScopeHolder] = []
    is_valid = form.validate_on_submit()
    if is_valid and not form.policy_confirmed.data:
        losing = preview_access_policy(context.actor, api_id, form.access_policy.data)
    if losing:
        form.add_error(
            gettext("Clients lose access to this API. Confirm the change, or give them access first."),
            "access_policy",
        )
    elif is_valid:
        with form.show_edit_errors(gettext("this API"), api.version):
            try:
                updated = update_resource(
                    context.actor,
                    api_id,
                    form.values(),
                    expected_version=form.version.data,
                    confirmed=form.confirmed.data,
                )
            except ScopesInUse as error:
                asks = True
                form.add_error(error.description, "scopes")
            else:
                return context.done(f"/apis/{api_id}", "saved" if updated.changed else "unchanged")
    return _api_page(context, api, form, asks_to_confirm=asks, losing=losing)


@portal_page("/apis/<api_id>/delete", "GET", "POST")
def delete_api(context: PortalContext, api_id: str) -> PageResponse:
    """Show the impact, and delete the API once its name is typed."""
    api = get_resource(context.actor, api_id)
    holders = list_resource_holders(context.actor, api_id)
    form = TypedConfirmationForm()
    if form.is_confirmed(api.name):
        delete_resource(context.actor, api_id, confirmed=True)
        return context.done("/apis", "api-deleted")
    return context.render(
        "portal/apis/delete.html",
        form=form,
        api=api,
        api_url=context.url(f"/apis/{api.public_id}"),
        holders=holders[:MAX_HOLDERS],
    )


@portal_page("/scopes", "GET")
def scopes(context: PortalContext) -> PageResponse:
    """List every scope by name, including those of no API; ``q`` searches."""
    query = search_query()
    page = search_scopes(context.actor, context.page_request(), query=query or None)
    return context.render("portal/apis/scopes.html", page=page, query=query)


@portal_page("/scopes/<path:scope_name>", "GET", "POST")
def scope_page(context: PortalContext, scope_name: str) -> PageResponse:
    """Show and change the texts of one scope; an API's scopes are changed on the page of the API.

    With ``delete`` in the query, ask and delete it: its name may contain slashes, so no path can follow it.
    """
    scope = get_scope(context.actor, scope_name)
    if "delete" in request.args:
        return _delete_scope(context, scope)
    form = ScopeForm(title=scope.title, description=scope.description, version=scope.version)
    if form.validate_on_submit():
        texts = {"title": form.title.data or None, "description": form.description.data or None}
        with form.show_edit_errors(gettext("this scope"), scope.version):
            _, changed = update_scope(context.actor, scope_name, texts, expected_version=form.version.data)
            return context.done("/scopes", "saved" if changed else "unchanged")
    return context.render(
        "portal/apis/scope.html",
        form=form,
        scope=scope,
        may_change=can_edit_scope(context.actor, scope),
        may_delete=can_delete_scope(context.actor, scope),
    )


def _delete_scope(context: PortalContext, scope: ScopeRecord) -> BaseResponse:
    holders = list_scope_holders(context.actor, scope.name)
    names = ", ".join(holder.name for holder in holders[:_MAX_NAMED])
    if len(holders) > _MAX_NAMED:
        names = gettext("%(names)s and others", names=names)
    impact = (
        gettext("It is removed from the clients that have it: %(names)s.", names=names)
        if holders
        else gettext("No client has it."),
        gettext("Tokens keep it until they expire."),
    )
    parents = ((gettext("Scopes"), "/scopes"), (scope.name, f"/scopes/{quote(scope.name)}"))
    return context.confirm_change(
        Confirmation(
            gettext("Delete the scope %(name)s?", name=scope.name), gettext("Delete scope"), parents, impact
        ),
        lambda: delete_scope(context.actor, scope.name, confirmed=True),
        "/scopes",
        "scope-deleted",
    )


def _api_page(
    context: PortalContext,
    api: ResourceRecord | None,
    form: ApiForm,
    *,
    asks_to_confirm: bool = False,
    losing: Sequence[ScopeHolder] = (),
) -> BaseResponse:
    owner_id = None if api is None else api.owner_id
    metadata = None if api is None else metadata_for(context.actor, api.public_id)
    return context.render(
        "portal/apis/form.html",
        form=form,
        api=api,
        asks_to_confirm=asks_to_confirm,
        losing=losing,
        owner=find_owner(context.actor, owner_id),
        may_change=api is None or context.actor.has_permission("resources:write", owner_id=owner_id),
        metadata=metadata,
        document=json.dumps(metadata.document, indent=2) if metadata is not None else None,
    )
