"""Charts: the axis, and the height of bars on it."""

from __future__ import annotations

import re

from app.portal.charts import stacked_bars
from tests.support.cases import each


@each(
    ("value", "axis"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (5, [0, 2, 4, 6]),
        (93, [0, 50, 100]),
        (340, [0, 100, 200, 300, 400]),
        (400, [0, 100, 200, 300, 400]),
        (401, [0, 200, 400, 600]),
    ],
)
def test_axis_ends_at_the_first_round_number_that_is_high_enough(value: int, axis: list[int]) -> None:
    drawn = stacked_bars("Tokens", [("1 Nov", "1 November", [value])], ["c1"])
    assert [int(text) for text in re.findall(r'<text x="0"[^>]*>(\d+)<', drawn)] == axis


def test_bar_is_as_high_as_its_part_of_the_axis() -> None:
    drawn = stacked_bars("Tokens", [("1 Nov", "1 November", [150, 50])], ["c1", "c2"])
    heights = [float(height) for height in re.findall(r'<rect class="c\d"[^>]* height="([\d.]+)"', drawn)]
    [whole] = re.findall(r'height="(\d+)" fill="none"', drawn)
    assert heights == [float(whole) * 0.75, float(whole) * 0.25]
