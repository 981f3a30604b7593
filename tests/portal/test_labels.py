"""Labels of the portal: every action, event group and choice has one."""

from __future__ import annotations

import pytest

from app.portal.labels import AUDIT_ACTIONS, EVENT_GROUPS, EVENT_WORDS
from app.portal.setting_forms import choice_label
from app.portal.setting_texts import TOPICS
from app.rules.audit.events import ALL_EVENTS, EVENT_TYPES, GROUPS, action_for_event_type
from app.rules.organizations.settings_table import SETTINGS, Choice, StringList
from tests.support.cases import each

pytestmark = pytest.mark.either

PATHS = [path for topic in TOPICS.values() for path in topic.paths]


@each("name", EVENT_TYPES)
def test_event_type_has_labels(name: str) -> None:
    assert action_for_event_type(name) in AUDIT_ACTIONS
    assert name.partition(".")[2].replace("_", " ") in EVENT_WORDS


def test_event_group_has_label() -> None:
    assert set(EVENT_GROUPS) == {ALL_EVENTS, *GROUPS}


@each("path", PATHS)
def test_choice_of_setting_has_unique_label(path: str) -> None:
    kind = SETTINGS[path].kind
    item = kind.item if isinstance(kind, StringList) else kind
    values = item.choices if isinstance(item, Choice) else ()
    labels = {value: choice_label(path, value) for value in values}

    # Algorithms are shown by their names.
    assert path == "oauth.signing.algorithm" or [value for value in values if labels[value] == value] == []
    assert len(set(labels.values())) == len(values)
