"""Settings of an organization: one topic a page, every field with its default and bounds."""

from __future__ import annotations

import json
from typing import Any

from flask import request

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
from app.portal.blueprint import portal
from app.portal.setting_fields import (
    UNITS,
    base_values,
    field_groups,
    in_words,
    is_no_number,
    nested,
    typed,
    values_of,
)
from app.portal.setting_topics import TOPICS, Topic
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from app.web.forms import field_errors, text, version_read


@portal.get("/portal/<organization>/settings")
@visiting
def settings(visit: Visit) -> Answer:
    """The topics, and how many settings of each the organization has set itself."""
    view = get_settings(visit.actor, visit.organization.slug)
    own = {key: sum(path in topic.paths for path in view.overridden) for key, topic in TOPICS.items()}
    return visit.render("portal/settings/index.html", topics=TOPICS, own=own, view=view)


@portal.route("/portal/<organization>/settings/general", methods=["GET", "POST"])
@visiting
def general(visit: Visit) -> Answer:
    """The organization's name, and the way to its end."""
    slug = visit.organization.slug
    found = get_organization(visit.actor, slug)
    name, errors, code = found.name, {}, 200
    if request.method == "POST":
        name = text("name")
        try:
            updated = update_organization(
                visit.actor,
                slug,
                {"name": name},
                expected_version=version_read(),
            )
            return visit.done("/settings/general", "saved" if updated.changed else "unchanged")
        except PreconditionFailed:
            code, errors = 412, {"": "Somebody changed the organization meanwhile. Check and save again."}
        except (InvalidInput, Conflict) as refusal:
            code, errors = 400, field_errors(refusal)
    return visit.render("portal/settings/general.html", code=code, record=found, name=name, errors=errors)


@portal.route("/portal/<organization>/settings/delete", methods=["GET", "POST"])
@visiting
def delete(visit: Visit) -> Answer:
    """What will stop working; afterwards the organization is deleted. Asks for a fresh sign-in."""
    slug = visit.organization.slug
    visit.actor.require("organization:delete")
    require_fresh_sign_in(visit.actor)
    found = get_organization(visit.actor, slug)
    errors: dict[str, str] = {}
    if request.method == "POST":
        if text("slug") == slug:
            gone = delete_organization(visit.actor, slug)
            return visit.render("portal/settings/deleted.html", record=gone)
        errors["slug"] = "This is not the organization’s id. Type it as it stands above."
    return visit.render(
        "portal/settings/delete.html", code=400 if errors else 200, record=found, errors=errors
    )


@portal.route("/portal/<organization>/settings/<topic>", methods=["GET", "POST"])
@visiting
def setting_topic(visit: Visit, topic: str) -> Answer:
    """One topic's form; posted, its changed fields are saved, tried out, or one is reset."""
    if topic not in TOPICS:
        raise NotFound("There is no such page of settings.")
    page = TOPICS[topic]
    view = get_settings(visit.actor, visit.organization.slug)
    if request.method == "GET":
        return _form(visit, page, view, values_of(page, view.document), {})
    if text("reset") in page.paths:
        _update(visit, {text("reset"): None})
        return visit.done(f"/settings/{topic}", "reset")
    values, changes = _changes(page)
    if text("act") == "preview":
        try:
            tried = _update(visit, changes, dry_run=True)
        except (InvalidInput, Conflict) as refusal:
            return _form(visit, page, view, values, _errors(refusal, values), code=400)
        return _form(visit, page, view, values, {}, impact=tried.impact, would_change=tried.changed)
    try:
        saved = _update(visit, changes, expected_version=version_read())
    except PreconditionFailed:
        return _conflict(visit, page, view, changes)
    except (InvalidInput, Conflict) as refusal:
        return _form(visit, page, view, values, _errors(refusal, values), code=400)
    return visit.done(f"/settings/{topic}", "saved" if saved.changed else "unchanged")


def _errors(refusal: InvalidInput | Conflict, values: dict[str, Any]) -> dict[str, str]:
    """The refusal by field; to a form, text in place of a number is no matter of types."""
    told = {path: "Type a whole number, such as 30." for path in values if is_no_number(path, values[path])}
    found = field_errors(refusal)
    return found | {path: words for path, words in told.items() if path in found}


def _changes(page: Topic) -> tuple[dict[str, Any], dict[str, Any]]:
    """(every value for the form, those that differ from what the form was made of)."""
    base = base_values(page)
    if "merge" in request.form:
        mine = base_values(page, "mine")
        kept = {path: value for path, value in mine.items() if text(f"keep.{path}") != "theirs"}
        return {**base, **kept}, kept
    values = typed(page)
    return values, {path: value for path, value in values.items() if path not in base or base[path] != value}


def _update(
    visit: Visit, changes: dict[str, Any], *, expected_version: int | None = None, dry_run: bool = False
) -> UpdatedSettings:
    return update_settings(
        visit.actor,
        visit.organization.slug,
        nested(changes),
        expected_version=expected_version,
        dry_run=dry_run,
    )


def _form(
    visit: Visit,
    page: Topic,
    view: SettingsRecord,
    values: dict[str, Any],
    errors: dict[str, str],
    *,
    code: int = 200,
    **context: Any,
) -> Answer:
    stored = values_of(page, view.document)
    return visit.render(
        "portal/settings/topic.html",
        code=code,
        topic=page,
        groups=field_groups(page, {**stored, **values}, view.overridden, view.limits),
        units=UNITS,
        view=view,
        base_json=json.dumps(stored),
        errors=errors,
        **context,
    )


def _conflict(visit: Visit, page: Topic, view: SettingsRecord, mine: dict[str, Any]) -> Answer:
    """Somebody saved in between: what was, what is, what was typed; the visitor says which holds."""
    was, now = base_values(page), values_of(page, view.document)
    rows = [
        {
            "path": path,
            "label": page.labels[path],
            "was": in_words(path, was.get(path)),
            "theirs": in_words(path, now[path]),
            "mine": in_words(path, value),
            "is_disputed": was.get(path) != now[path],
        }
        for path, value in mine.items()
        if value != now[path]
    ]
    return visit.render(
        "portal/settings/conflict.html",
        code=409,
        topic=page,
        rows=rows,
        view=view,
        base_json=json.dumps(now),
        mine_json=json.dumps(mine),
    )
