"""Words of the portal: what happened, and what a setting may be, is never told by the name that programs use."""

from __future__ import annotations

import pytest

from app.portal.setting_fields import choice_words
from app.portal.setting_topics import TOPICS
from app.portal.words import HAPPENINGS, WEBHOOK_GROUPS
from app.rules.audit.events import ALL_EVENTS, EVENT_TYPES, GROUPS, action_for_event_type
from app.rules.organizations.settings_table import SETTINGS, Choice, StringList

pytestmark = pytest.mark.either

PATHS = [path for topic in TOPICS.values() for path in topic.paths]


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_whatever_webhooks_are_told_has_words_in_the_audit_log(name: str) -> None:
    assert action_for_event_type(name) in HAPPENINGS


def test_each_group_of_webhooks_has_a_title() -> None:
    assert set(WEBHOOK_GROUPS) == {ALL_EVENTS, *GROUPS}


@pytest.mark.parametrize("path", PATHS)
def test_no_choice_of_a_setting_shows_the_word_that_programs_send(path: str) -> None:
    kind = SETTINGS[path].kind
    item = kind.item if isinstance(kind, StringList) else kind
    words = item.words if isinstance(item, Choice) else ()
    shown = {word: choice_words(path, word) for word in words}

    # Names of algorithms are names.
    assert path == "oauth.signing.algorithm" or [word for word in words if shown[word] == word] == []
    assert len(set(shown.values())) == len(words)
