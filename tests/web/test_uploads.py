"""Places to upload: one for each organization, and what is left of lines that never end."""

from __future__ import annotations

import time

import pytest

from app.rules.errors import TooManyRequests, Unavailable
from app.web import uploads
from app.web.uploads import MOST_AT_ONCE, MOST_HANGING, MOST_HANGING_OF_ONE, _Lines


def left_behind(lines: _Lines, organization: str) -> object:
    """The line of an upload that stopped."""
    line = object()
    lines.take(organization)
    lines.leave(organization, line, hangs=True)
    return line


def test_two_that_send_slowly_leave_places_to_others() -> None:
    """P2: of one organization there is one; half of the eight threads of a process is for files."""
    lines = _Lines()
    for organization in ("slow", "slower"):
        lines.take(organization)
        with pytest.raises(TooManyRequests):
            lines.take(organization)
    lines.take("third")
    lines.take("fourth")
    assert MOST_AT_ONCE == 4
    with pytest.raises(Unavailable):
        lines.take("fifth")


def test_a_line_that_never_ends_keeps_its_organization_out_for_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "WHOLE_SECONDS", 0.2)
    lines = _Lines()
    left_behind(lines, "acme")
    with pytest.raises(TooManyRequests, match="Another file"):
        lines.take("acme")
    time.sleep(0.25)
    # The next hangs as well: the end of the one before says nothing about it.
    first = next(iter(lines._hanging))[1]
    left_behind(lines, "acme")
    lines.line_ended("acme", first)
    with pytest.raises(TooManyRequests, match="Another file"):
        lines.take("acme")


def test_the_threads_left_behind_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """P2: nobody has more than a share of them, so that it takes many to use up what is for all."""
    monkeypatch.setattr(uploads, "WHOLE_SECONDS", 0)
    lines = _Lines()
    for _ in range(MOST_HANGING_OF_ONE):
        line = left_behind(lines, "acme")
    with pytest.raises(TooManyRequests, match="still open"):
        lines.take("acme")
    for number in range(MOST_HANGING - MOST_HANGING_OF_ONE):
        left_behind(lines, f"other{number}")
    with pytest.raises(Unavailable):
        lines.take("another")
    lines.line_ended("acme", line)
    lines.take("another")
    lines.take("acme")
