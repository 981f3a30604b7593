"""The settings pages, and the fields of their forms, made from the table of settings."""

from __future__ import annotations

import json
from typing import Any

from flask import redirect, request
from wtforms import HiddenField

from app.operations.organizations.organizations import (
    delete_organization,
    get_organization,
    update_organization,
)
from app.operations.organizations.settings import (
    SettingsRecord,
    UpdatedSettings,
    get_settings,
    gives_permissions,
    may_change_limits,
    protects_sign_in,
    update_settings,
)
from app.operations.sign_in.reauthentication import require_fresh_sign_in, require_fresh_user_sign_in
from app.operations.tokens.signing_key_lists import (
    list_removed_by_emergency,
    list_signing_keys,
    rotate_signing_key,
)
from app.portal.context import (
    Confirmation,
    PageResponse,
    PortalContext,
    portal_page,
)
from app.portal.navigation import settings_navigation
from app.portal.organizations import deletion_of
from app.portal.setting_forms import (
    ACCENT_COLOR,
    UNITS,
    MergeForm,
    ResetForm,
    TopicForm,
    Values,
    describe_value,
    merge_form,
    nested,
    topic_form,
    values_from_json,
    values_of,
)
from app.portal.setting_texts import TOPICS, Topic
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.organizations.branding import DEFAULT_ACCENT, describe_accent
from app.rules.organizations.settings import value_at
from app.web.flash import flash
from app.web.forms import PageForm, TypedConfirmationForm, VersionField, name_field
from app.web.languages import gettext, lazy_gettext, translate


class GeneralForm(PageForm):
    """The organization's name."""

    version = VersionField()
    name = name_field(lazy_gettext("Shown to users on the sign-in and consent pages."))


class RotateKeyForm(PageForm):
    """Rotates the signing key of an algorithm."""

    algorithm = HiddenField()


@portal_page("/settings", "GET")
def settings(context: PortalContext) -> PageResponse:
    """Redirect to the first page of settings that the user may open."""
    groups = settings_navigation(context.organization, context.actor.has_permission, request.path)
    if not groups:
        context.actor.require("settings:read")
    [(_, entries), *_] = groups
    return redirect(entries[0].url, 303)


@portal_page("/settings/general", "GET", "POST")
def general(context: PortalContext) -> PageResponse:
    """Show and change the organization's name."""
    slug = context.organization.slug
    record = get_organization(context.actor, slug)
    form = GeneralForm(obj=record)
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("the organization"), record.version):
            updated = update_organization(
                context.actor, slug, {"name": form.name.data}, expected_version=form.version.data
            )
            return context.done("/settings/general", "saved" if updated.changed else "unchanged")
    return context.render("portal/settings/general.html", form=form, record=record)


@portal_page("/settings/delete", "GET", "POST")
def delete(context: PortalContext) -> PageResponse:
    """Show the impact, and delete the organization. Requires a fresh sign-in."""
    slug = context.organization.slug
    context.actor.require("organization:delete")
    require_fresh_sign_in(context.actor)
    record = get_organization(context.actor, slug)
    form = TypedConfirmationForm()
    if form.is_confirmed(slug):
        deleted = delete_organization(context.actor, slug)
        once = {"notice": "organization-deleted", "name": deleted.name, "purge_at": deleted.purge_at}
        return flash(redirect("/login", 303), once, organization_id=None)
    parents = ((gettext("Settings"), "/settings"), (gettext("General"), "/settings/general"))
    return context.confirm(form, deletion_of(record, parents, by_root=False))


@portal_page("/settings/keys", "GET")
def signing_keys(context: PortalContext) -> PageResponse:
    """List the published keys, with their next change."""
    return context.render(
        "portal/settings/keys.html",
        keys=list_signing_keys(context.actor, context.organization.slug),
        algorithm=context.organization.settings["oauth"]["signing"]["algorithm"],
    )


@portal_page("/settings/keys/rotate", "POST")
def rotate_keys(context: PortalContext) -> PageResponse:
    """Publish the next key of an algorithm; one published for a day already starts to sign."""
    algorithm = RotateKeyForm().algorithm.data or ""
    key = rotate_signing_key(context.actor, context.organization.slug, {"algorithm": algorithm})
    return context.done("/settings/keys", "key-published" if key.state == "next" else "key-active")


@portal_page("/settings/keys/<algorithm>/replace", "GET", "POST")
def replace_keys(context: PortalContext, algorithm: str) -> PageResponse:
    """Confirm and replace every key of the algorithm with a new one. Requires a fresh sign-in."""
    removed = list_removed_by_emergency(context.actor, context.organization.slug, algorithm)
    kids = ", ".join(f"{key.kid[:12]}…" for key in removed)
    impact = (
        gettext(
            "ID tokens and JWT access tokens signed with these keys can no longer be verified: %(kids)s.",
            kids=kids,
        ),
        gettext(
            "Users have to sign in to clients again. APIs that verify JWTs reject requests until clients get new"
            " tokens."
        ),
        gettext(
            "Clients and APIs that cache the keys may accept the old ones for five minutes, or until you restart them."
        ),
        gettext(
            "Opaque tokens, refresh tokens and secrets keep working. Revoke them as well if they may have leaked."
        ),
    )
    parents = ((gettext("Settings"), "/settings"), (gettext("Signing keys"), "/settings/keys"))
    return context.confirm_change(
        Confirmation(
            gettext("Replace the %(algorithm)s keys now?", algorithm=algorithm),
            gettext("Replace keys"),
            parents,
            impact,
        ),
        lambda: rotate_signing_key(
            context.actor, context.organization.slug, {"algorithm": algorithm, "emergency": True}
        ),
        "/settings/keys",
        "keys-replaced",
    )


@portal_page("/settings/<topic>", "GET", "POST")
def setting_topic(context: PortalContext, topic: str) -> PageResponse:
    """Show one topic; preview or save its changed fields, or reset one to its default."""
    if topic not in TOPICS:
        raise NotFound(lazy_gettext("This settings page does not exist."))
    page = TOPICS[topic]
    if (
        request.method == "GET"
        and protects_sign_in(page.paths)
        and context.actor.has_permission("settings:write")
    ):
        # Before the user changes anything.
        require_fresh_user_sign_in(context.actor)
    view = get_settings(context.actor, context.organization.slug)
    form = topic_form(page, view, values_of(page, view.document))
    if not form.is_submitted():
        return _topic_page(context, page, view, form)
    reset = ResetForm().reset.data
    if reset in page.paths:
        _update(context, {reset: None})
        return context.done(f"/settings/{topic}", "reset")
    merge = merge_form(page)
    if merge.merge.data:
        changes = _merged(page, merge)
        form.process(data={**values_of(page, view.document), **changes})
    else:
        # The operation runs in any case, so that all errors are shown at once.
        form.validate()
        base = values_from_json(page, form.base.data)
        values = form.values(page)
        changes = {path: value for path, value in values.items() if path not in base or base[path] != value}
    impact: dict[str, Any] = {}
    try:
        if form.preview.data:
            preview = _update(context, changes, dry_run=True)
            impact = {"impact": preview.impact, "would_change": preview.changed}
        else:
            saved = _update(context, changes, expected_version=form.version.data or merge.version.data)
            return context.done(f"/settings/{topic}", "saved" if saved.changed else "unchanged")
    except PreconditionFailed:
        return _conflict_page(
            context, page, view, values_from_json(page, form.base.data or merge.base.data), changes
        )
    except (InvalidInput, Conflict, Forbidden) as error:
        form.add_errors(error)
    return _topic_page(context, page, view, form, **impact)


def _merged(page: Topic, form: MergeForm) -> Values:
    """Return the values of the conflict page that the user wants to save."""
    mine = values_from_json(page, form.mine.data)
    return {path: value for path, value in mine.items() if form[f"keep.{path}"].data != "theirs"}


def _update(
    context: PortalContext, changes: Values, *, expected_version: int | None = None, dry_run: bool = False
) -> UpdatedSettings:
    return update_settings(
        context.actor,
        context.organization.slug,
        nested(changes),
        expected_version=expected_version,
        dry_run=dry_run,
    )


def _topic_page(
    context: PortalContext, page: Topic, view: SettingsRecord, form: TopicForm, **variables: Any
) -> PageResponse:
    if not form.base.data:
        # A preview keeps what its form was made from, so that a change in between is still a conflict.
        form.version.data = view.version
        form.base.data = json.dumps(values_of(page, view.document))
    sample = _branding_sample(form, view) if ACCENT_COLOR in page.paths else None
    may_change = context.actor.has_permission("settings:write") and (
        may_change_limits(context.actor) or not page.is_of_instance
    )
    return context.render(
        "portal/settings/topic.html",
        form=form,
        topic=page,
        units=UNITS,
        view=view,
        may_change=may_change,
        again_url=context.sign_in_again_url() if may_change and gives_permissions(page.paths) else None,
        sample=sample,
        **variables,
    )


def _branding_sample(form: TopicForm, view: SettingsRecord) -> dict[str, Any]:
    """Return what the sample of the branded pages shows: the form, with the saved color if its own is invalid."""
    color = str(form[ACCENT_COLOR].data).lower()
    try:
        words = describe_accent(color)
    except ValueError:
        color = str(value_at(view.document, ACCENT_COLOR)).lower()
        words = describe_accent(color)
    theme = form["branding.theme"].data
    return {
        "name": form["branding.display_name"].data,
        "message": form["branding.login_message"].data,
        "logo": view.document["branding"]["logo"],
        "accent": None if color == DEFAULT_ACCENT else color.removeprefix("#"),
        "themes": [theme] if theme in ("light", "dark") else ["light", "dark"],
        "contrast": " ".join(map(translate, words)),
    }


def _conflict_page(
    context: PortalContext, page: Topic, view: SettingsRecord, base: Values, mine: Values
) -> PageResponse:
    """Show what the user opened, what someone saved in between and what the user typed."""
    current = values_of(page, view.document)
    rows = [
        {
            "path": path,
            "label": page.labels[path],
            "before": describe_value(path, base.get(path)),
            "theirs": describe_value(path, current[path]),
            "mine": describe_value(path, value),
            "is_disputed": base.get(path) != current[path],
        }
        for path, value in mine.items()
        if value != current[path]
    ]
    form = merge_form(page)
    form.version.data = view.version
    form.merge.data = "1"
    form.base.data = json.dumps(current)
    form.mine.data = json.dumps(mine)
    return context.render(
        "portal/settings/conflict.html", form=form, code=409, topic=page, rows=rows, view=view
    )
