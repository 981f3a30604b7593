"""Moves of an organization under load in their short form. ``script/test faults moves`` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import moves


@pytest.mark.slow
@pytest.mark.mariadb
def test_killed_and_repeated_move_loses_and_revives_nothing(tmp_path: Path) -> None:
    result = moves.run(tmp_path, moves=1, kills=1, seed=3)
    assert not result.violations and result.unanswered == 0, result.violations[:5]
    assert result.requests > result.unavailable > 0
    assert "is served by b" in result.said[0]
