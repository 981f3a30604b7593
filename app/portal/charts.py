"""Charts as SVG without a script: stacked bars, sparklines and meters. Each bar has a title, and a table repeats it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from app.web.languages import number

_WIDTH, CHART_HEIGHT, _LEFT, _TOP = 720, 340, 44, 8
_SPARK_WIDTH, _SPARK_HEIGHT = 84, 26
_MAX_LABELS = 7


def stacked_bars(
    label: str,
    bars: Sequence[tuple[str, str, Sequence[int]]],
    classes: Sequence[str],
    total: int = CHART_HEIGHT,
) -> Markup:
    """Draw one bar of stacked parts for each entry, in a picture of this height.

    Each entry is (label of the axis, title of the bar, the part of each class from the bottom up).
    """
    step, steps = _scale(max((sum(parts) for _, _, parts in bars), default=0))
    top = step * steps
    floor = total - 20
    height = floor - _TOP
    # Only texts need escaping: the rest are numbers and classes of the style sheet.
    drawn: list[str] = []
    for value in range(0, top + 1, step):
        y = round(floor - height * value / top, 1)
        drawn.append(
            f'<line class="g" x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
            f'<text x="0" y="{y + 4}">{escape(number(value))}</text>'
        )
    room = (_WIDTH - _LEFT) / max(len(bars), 1)
    width = round(min(room * 0.72, 40), 1)
    every = -(-len(bars) // _MAX_LABELS) or 1
    for index, (short, title, parts) in enumerate(bars):
        left = round(_LEFT + room * index, 1)
        x, y = round(left + (room - width) / 2, 1), float(floor)
        # The transparent part makes the whole height show the title.
        drawn.append(
            f'<g><title>{escape(title)}</title><rect x="{left}" y="{_TOP}" width="{round(room, 1)}" '
            f'height="{height}" fill="none" pointer-events="all"/>'
        )
        for part, name in zip(parts, classes, strict=True):
            if part:
                size = round(max(height * part / top, 1.5), 1)
                y = round(y - size, 1)
                drawn.append(f'<rect class="{name}" x="{x}" y="{y}" width="{width}" height="{size}"/>')
        drawn.append("</g>")
        if index % every == 0:
            drawn.append(f'<text x="{x}" y="{total - 4}">{escape(short)}</text>')
    return Markup(  # noqa: S704 - texts are escaped above
        f'<svg class="chart wide" viewBox="0 0 {_WIDTH} {total}" role="img" aria-label="{escape(label)}">'
        f"{''.join(drawn)}</svg>"
    )


def sparkline(values: Sequence[int], *, bad: bool = False) -> Markup:
    """Draw the course of a few values; the text beside it says the figures, so it is hidden from screen readers."""
    if len(values) < 2:
        return Markup("")
    top = max(values) or 1
    step = _SPARK_WIDTH / (len(values) - 1)
    points = " ".join(
        f"{index * step:.1f},{_SPARK_HEIGHT - 3 - (_SPARK_HEIGHT - 6) * value / top:.1f}"
        for index, value in enumerate(values)
    )
    kind, width, height = " bad" if bad else "", _SPARK_WIDTH, _SPARK_HEIGHT
    return Markup(  # noqa: S704 - numbers only
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'<polygon class="area{kind}" points="0,{height} {points} {width},{height}"/>'
        f'<polyline class="spark{kind}" points="{points}"/></svg>'
    )


def meter(part: int, whole: int, *, bad: bool = False) -> Markup:
    """Draw a bar that is filled to ``part`` of ``whole``; the text beside it says the figures."""
    width = round(120 * part / whole, 1) if whole else 0
    return Markup(  # noqa: S704 - numbers only
        '<svg class="meter" viewBox="0 0 120 6" preserveAspectRatio="none" aria-hidden="true"><rect class="bg" '
        f'width="120" height="6"/><rect class="{"bad" if bad else "fg"}" width="{width}" height="6"/></svg>'
    )


def _scale(value: int) -> tuple[int, int]:
    """Return the distance of the axis' lines, a round number, and how many reach the value: at most four."""
    size = 1
    while True:
        for factor in (1, 2, 5):
            steps = max(1, -(-value // (factor * size)))
            if steps <= 4:
                return factor * size, steps
        size *= 10
