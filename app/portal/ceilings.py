"""Ceilings of the installation, for root's administrators: one setting a page, tried out before it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import request

from app.operations.organizations.instance_limits import (
    InstanceLimitsRecord,
    UpdatedInstanceLimits,
    get_instance_limits,
    update_instance_limits,
)
from app.portal.blueprint import portal
from app.portal.setting_fields import choice_words, in_words
from app.portal.setting_topics import TOPICS
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from app.rules.organizations.instance_limits import BOUNDABLE, allowed_values
from app.rules.organizations.organizations import ROOT_SLUG
from app.rules.organizations.settings_table import SETTINGS
from app.web.forms import field_errors, text, ticked, version_read

# Beside those of the pages of settings, those of what only the API sets.
_LABELS = {
    "authentication.recovery.password_reset": "A forgotten password can be chosen anew",
    "authentication.recovery.reset_ttl_seconds": "A link for a new password works for",
    **{path: label for topic in TOPICS.values() for path, label in topic.labels.items()},
}


@portal.get("/portal/<organization>/ceilings")
@visiting
def ceilings(visit: Visit) -> Answer:
    """Every setting that can be bounded, by topic, with its ceiling where there is one."""
    view = _read(visit)
    groups = [
        (
            f"{topic.title}: {heading}" if heading != topic.title else heading,
            key,
            [(path, label, _in_words(path, view.bounds.get(path))) for path, label in bounded],
        )
        for key, topic in TOPICS.items()
        for heading, rows in topic.groups
        if (bounded := [row for row in rows if row[0] in BOUNDABLE])
    ]
    standing = {path for topic in TOPICS.values() for path in topic.paths}
    others = [path for path in BOUNDABLE if path not in standing]
    if others:
        rest = [(path, _LABELS.get(path, path), _in_words(path, view.bounds.get(path))) for path in others]
        groups.append(("Other", "", rest))
    return visit.render("portal/ceilings/list.html", groups=groups, view=view)


@portal.route("/portal/<organization>/ceilings/<setting>", methods=["GET", "POST"])
@visiting
def ceiling(visit: Visit, setting: str) -> Answer:
    """One setting's ceiling: posted, it is tried out, saved, or lifted."""
    view = _read(visit)
    if setting not in BOUNDABLE:
        raise NotFound("There is no such page.")
    if request.method == "GET":
        return _form(visit, setting, view, view.bounds.get(setting) or {}, {})
    bound = None if text("act") == "lift" else _typed(setting)
    tried: UpdatedInstanceLimits | None = None
    errors: dict[str, str] = {}
    try:
        if text("act") == "preview":
            tried = update_instance_limits(visit.actor, {setting: bound}, dry_run=True)
        else:
            update_instance_limits(visit.actor, {setting: bound}, expected_version=version_read())
            return visit.done("/ceilings", "saved")
    except PreconditionFailed:
        errors = {"": "Somebody changed the ceilings meanwhile. Check and save again."}
    except (InvalidInput, Conflict) as refusal:
        places = {f"{setting}.{name}": name for name in ("min", "max", "allowed")}
        errors = field_errors(
            refusal, {**places, setting: "max" if not allowed_values(setting) else "allowed"}
        )
    return _form(visit, setting, view, bound or {}, errors, tried)


def _read(visit: Visit) -> InstanceLimitsRecord:
    # Which pages there are is the portal's; who may see them the operation says.
    if visit.organization.slug != ROOT_SLUG:
        raise NotFound("There is no such page.")
    return get_instance_limits(visit.actor)


def _typed(setting: str) -> dict[str, Any] | None:
    """What was typed, as the operation wants it; None when nothing is bounded."""
    if allowed_values(setting):
        sent = ticked("allowed")
        allowed = [word for word in allowed_values(setting) if _key(word) in sent]
        return None if len(allowed) == len(allowed_values(setting)) else {"allowed": allowed}
    typed = {name: text(name) for name in ("min", "max") if text(name)}
    # What is no number stays the text it is, so that the operation refuses it at its field.
    return {
        name: int(found) if found.isdecimal() and len(found) <= 12 else found for name, found in typed.items()
    } or None


def _key(word: Any) -> str:
    return str(word).lower() if isinstance(word, bool) else str(word)


def _form(
    visit: Visit,
    setting: str,
    view: InstanceLimitsRecord,
    bound: Mapping[str, Any],
    errors: dict[str, str],
    tried: UpdatedInstanceLimits | None = None,
) -> Answer:
    kind = SETTINGS[setting].kind
    allowed = bound.get("allowed", list(allowed_values(setting)))
    return visit.render(
        "portal/ceilings/ceiling.html",
        code=400 if errors else 200,
        path=setting,
        label=_LABELS.get(setting, setting),
        topic=_topic_of(setting),
        why=SETTINGS[setting].description,
        default=in_words(setting, SETTINGS[setting].default),
        bound=bound,
        standing=_in_words(setting, view.bounds.get(setting)),
        options=[
            (_key(word), choice_words(setting, word), word in allowed) for word in allowed_values(setting)
        ],
        least=_bound_words(setting, getattr(kind, "minimum", None)),
        most=_bound_words(setting, getattr(kind, "maximum", None)),
        is_seconds=setting.endswith("_seconds"),
        errors=errors,
        tried=tried,
        version=view.version,
    )


def _bound_words(setting: str, bound: int | None) -> str:
    """A number as it is typed, and in words where they are others: ``86400 (1 day)``."""
    if bound is None:
        return ""
    words = in_words(setting, bound)
    return str(bound) if words == f"{bound:,}" else f"{bound} ({words})"


def _topic_of(setting: str) -> tuple[str, str] | None:
    """(key, title) of the page of settings that it stands on; None for one that only the API sets."""
    return next(((key, topic.title) for key, topic in TOPICS.items() if setting in topic.paths), None)


def _in_words(setting: str, bound: Mapping[str, Any] | None) -> str | None:
    if bound is None:
        return None
    if "allowed" in bound:
        return "only " + ", ".join(choice_words(setting, word) for word in bound["allowed"])
    parts = [
        f"{relation} {in_words(setting, bound[name])}"
        for name, relation in (("min", "at least"), ("max", "at most"))
        if name in bound
    ]
    return " and ".join(parts)
