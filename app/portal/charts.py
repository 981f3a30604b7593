"""Charts as SVG without a script: stacked bars, sparklines and meters. Each bar has a title, and a table repeats it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from app.web.languages import number

_WIDTH, CHART_HEIGHT, _LEFT, _TOP = 720, 340, 44, 8
_SPARK_WIDTH, _SPARK_HEIGHT = 84, 26
_MAX_LABELS = 7
_CHART = Markup(
    '<svg class="chart wide" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{content}</svg>'
)
_GRID_LINE = Markup(
    '<line class="g" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/><text x="0" y="{text_y}">{text}</text>'
)
# The transparent part makes the whole height show the title.
_BAR = Markup(
    '<g><title>{title}</title><rect x="{left}" y="{top}" width="{room}" height="{height}" fill="none" '
    'pointer-events="all"/>{parts}</g>'
)
_BAR_PART = Markup('<rect class="{name}" x="{x}" y="{y}" width="{width}" height="{height}"/>')
_AXIS_LABEL = Markup('<text x="{x}" y="{y}">{text}</text>')
_SPARKLINE = Markup(
    '<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" aria-hidden="true">'
    '<polygon class="area{kind}" points="0,{height} {points} {width},{height}"/>'
    '<polyline class="spark{kind}" points="{points}"/></svg>'
)
_METER = Markup(
    '<svg class="meter" viewBox="0 0 120 6" preserveAspectRatio="none" aria-hidden="true">'
    '<rect class="bg" width="120" height="6"/><rect class="{kind}" width="{width}" height="6"/></svg>'
)


def stacked_bars(
    label: str,
    bars: Sequence[tuple[str, str, Sequence[int]]],
    classes: Sequence[str],
    total: int = CHART_HEIGHT,
) -> Markup:
    """Draw one bar of stacked parts for each entry, in a picture of this height.

    Each entry is (label of the axis, title of the bar, the part of each class from the bottom up).
    """
    top = _round_up(max((sum(parts) for _, _, parts in bars), default=0))
    floor = total - 20
    height = floor - _TOP
    lines: list[Markup] = []
    for step in range(4):
        value = top * step // 3
        y = round(floor - height * value / top, 1)
        lines.append(_GRID_LINE.format(left=_LEFT, right=_WIDTH, y=y, text_y=y + 4, text=number(value)))
    room = (_WIDTH - _LEFT) / max(len(bars), 1)
    width = round(min(room * 0.72, 40), 1)
    every = -(-len(bars) // _MAX_LABELS) or 1
    for index, (short, title, parts) in enumerate(bars):
        left = round(_LEFT + room * index, 1)
        x, y = round(left + (room - width) / 2, 1), float(floor)
        drawn: list[Markup] = []
        for part, name in zip(parts, classes, strict=True):
            if part:
                size = round(max(height * part / top, 1.5), 1)
                y = round(y - size, 1)
                drawn.append(_BAR_PART.format(name=name, x=x, y=y, width=width, height=size))
        lines.append(
            _BAR.format(
                title=title,
                left=left,
                top=_TOP,
                room=round(room, 1),
                height=height,
                parts=Markup("").join(drawn),
            )
        )
        if index % every == 0:
            lines.append(_AXIS_LABEL.format(x=x, y=total - 4, text=short))
    return _CHART.format(width=_WIDTH, height=total, label=label, content=Markup("").join(lines))


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
    return _SPARKLINE.format(
        width=_SPARK_WIDTH, height=_SPARK_HEIGHT, kind=" bad" if bad else "", points=points
    )


def meter(part: int, whole: int, *, bad: bool = False) -> Markup:
    """Draw a bar that is filled to ``part`` of ``whole``; the text beside it says the figures."""
    width = round(120 * part / whole, 1) if whole else 0
    return _METER.format(kind="bad" if bad else "fg", width=width)


def _round_up(value: int) -> int:
    """Return the end of the axis: a round number, divisible by three, that is not below the value."""
    size = 1
    while True:
        for factor in (3, 6, 9, 15, 30):
            if factor * size >= value:
                return factor * size
        size *= 10
