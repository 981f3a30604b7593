"""Settings of an organization, one topic per page, and its signing keys."""

from __future__ import annotations

import json
from typing import Any

from wtforms import HiddenField, StringField
from wtforms.validators import InputRequired, Length

from app.operations.organizations.organizations import (
    delete_organization,
    get_organization,
    update_organization,
)
from app.operations.organizations.settings import (
    SettingsRecord,
    UpdatedSettings,
    get_settings,
    update_settings,
)
from app.operations.sign_in.reauthentication import require_fresh_sign_in
from app.operations.tokens.signing_key_lists import (
    list_removed_by_emergency,
    list_signing_keys,
    rotate_signing_key,
)
from app.portal.blueprint import portal
from app.portal.context import PageResponse, PortalContext, portal_page
from app.portal.organizations import DeleteOrganizationForm
from app.portal.setting_fields import (
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
from app.rules.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from app.web.forms import PageForm, VersionField


class GeneralForm(PageForm):
    """The organization's name."""

    version = VersionField()
    name = StringField(
        "Name",
        [InputRequired(), Length(max=100)],
        description="Shown to users on the sign-in and consent pages.",
        render_kw={"autocomplete": "off"},
    )


class RotateKeyForm(PageForm):
    """Rotates the signing key of an algorithm."""

    algorithm = HiddenField()


@portal.get("/portal/<organization>/settings")
@portal_page
def settings(context: PortalContext) -> PageResponse:
    """List the topics, with the number of settings that the organization has changed."""
    view = get_settings(context.actor, context.organization.slug)
    changed = {key: sum(path in topic.paths for path in view.overridden) for key, topic in TOPICS.items()}
    return context.render("portal/settings/index.html", topics=TOPICS, changed=changed, view=view)


@portal.route("/portal/<organization>/settings/general", methods=["GET", "POST"])
@portal_page
def general(context: PortalContext) -> PageResponse:
    """Show and change the organization's name."""
    slug = context.organization.slug
    record = get_organization(context.actor, slug)
    form, code = GeneralForm(obj=record), None
    if form.validate_on_submit():
        try:
            updated = update_organization(
                context.actor, slug, {"name": form.name.data}, expected_version=form.version.data
            )
            return context.done("/settings/general", "saved" if updated.changed else "unchanged")
        except PreconditionFailed:
            code = 412
            form.add_error(
                "Someone changed the organization after you opened the page. Check the values and save again."
            )
            form.version.data = record.version
        except (InvalidInput, Conflict) as error:
            form.add_errors(error)
    return context.render("portal/settings/general.html", form=form, code=code, record=record)


@portal.route("/portal/<organization>/settings/delete", methods=["GET", "POST"])
@portal_page
def delete(context: PortalContext) -> PageResponse:
    """Show what will stop working, and delete the organization. Requires a fresh sign-in."""
    slug = context.organization.slug
    context.actor.require("organization:delete")
    require_fresh_sign_in(context.actor)
    record = get_organization(context.actor, slug)
    form = DeleteOrganizationForm()
    if form.is_confirmed(slug):
        return context.render("portal/settings/deleted.html", record=delete_organization(context.actor, slug))
    return context.render("portal/settings/delete.html", form=form, record=record)


@portal.get("/portal/<organization>/settings/keys")
@portal_page
def signing_keys(context: PortalContext) -> PageResponse:
    """List the published keys, with their next change."""
    return context.render(
        "portal/settings/keys.html",
        keys=list_signing_keys(context.actor, context.organization.slug),
        algorithm=context.organization.settings["oauth"]["signing"]["algorithm"],
    )


@portal.post("/portal/<organization>/settings/keys/rotate")
@portal_page
def rotate_keys(context: PortalContext) -> PageResponse:
    """Publish the next key of an algorithm; one published for a day already starts to sign."""
    algorithm = RotateKeyForm().algorithm.data or ""
    key = rotate_signing_key(context.actor, context.organization.slug, algorithm=algorithm)
    return context.done("/settings/keys", "key-published" if key.state == "next" else "key-active")


@portal.route("/portal/<organization>/settings/keys/<algorithm>/replace", methods=["GET", "POST"])
@portal_page
def replace_keys(context: PortalContext, algorithm: str) -> PageResponse:
    """Confirm and replace every key of the algorithm with a new one. Requires a fresh sign-in."""
    form = PageForm()
    if form.validate_on_submit():
        rotate_signing_key(context.actor, context.organization.slug, algorithm=algorithm, emergency=True)
        return context.done("/settings/keys", "keys-replaced")
    removed = list_removed_by_emergency(context.actor, context.organization.slug, algorithm)
    return context.render(
        "portal/settings/replace_keys.html", form=form, removed=removed, algorithm=algorithm
    )


@portal.route("/portal/<organization>/settings/<topic>", methods=["GET", "POST"])
@portal_page
def setting_topic(context: PortalContext, topic: str) -> PageResponse:
    """Show one topic; preview or save its changed fields, or reset one to its default."""
    if topic not in TOPICS:
        raise NotFound("This settings page does not exist.")
    page = TOPICS[topic]
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
    except (InvalidInput, Conflict) as error:
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
    form.version.data = view.version
    form.base.data = json.dumps(values_of(page, view.document))
    return context.render(
        "portal/settings/topic.html", form=form, topic=page, units=UNITS, view=view, **variables
    )


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
