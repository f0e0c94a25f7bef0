"""The report's charts as SVG whose colours are CSS classes: one drawing follows the page's light and dark mode.

Every function returns one `<svg>` element; hovering over a mark shows its figures (`<title>`), without a script. Plots
for a file are tasks.trajectories.analysis: matplotlib writes colours and fonts into every element.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

Format = Callable[[float], str]

# Sizes in SVG units, about the pixels of a chart on a wide page: text has one size everywhere.
SMALL = (300.0, 168.0)
MEDIUM = (480.0, 230.0)
WIDE = (985.0, 250.0)


class Plot(NamedTuple):
    """A drawing area in SVG units, and the values that its edges stand for."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        """Return the horizontal place of a value."""
        span = (self.x_high - self.x_low) or 1.0
        return self.left + (value - self.x_low) / span * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Return the vertical place of a value."""
        span = (self.y_high - self.y_low) or 1.0
        return self.height - self.bottom - (value - self.y_low) / span * (self.height - self.top - self.bottom)


def ticks(low: float, high: float) -> list[float]:
    """Return round values that cover [low, high], about four of them."""
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, 1e-300):
        high = low + (size if size > 1e-300 else 1.0)
    raw = (high - low) / 4
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * magnitude >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def percent(value: float) -> str:
    """Return 0.41 as `41 %`."""
    return f"{100 * value:.0f} %"


def short(value: float) -> str:
    """Return a figure with about three significant digits."""
    if value == 0:
        return "0"
    if abs(value) < 0.001 or abs(value) >= 1e5:
        return f"{value:.1e}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


class Point(NamedTuple):
    """One value beside a curve."""

    x: float
    y: float
    tone: str
    name: str


def line_chart(
    xs: Sequence[float],
    ys: Sequence[float | None],
    *,
    tone: str = "tone-after",
    x_label: str = "",
    form: Format = short,
    smooth: bool = False,
    points_beside: Sequence[Point] = (),
) -> Markup:
    """Draw one curve over the range of its values, and points beside it.

    `smooth` draws a running mean over the pale raw values. Missing values leave a gap.
    """
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None and math.isfinite(y)]
    if not points:
        return _nothing(*SMALL)
    beside = [point for point in points_beside if math.isfinite(point.y)]
    values = [y for _, y in points]
    marks = ticks(min(values + [point.y for point in beside]), max(values + [point.y for point in beside]))
    ends = [points[0][0], points[-1][0], *(point.x for point in beside)]
    plot = Plot(*SMALL, 40, 10, 10, 26, min(ends), max(ends), marks[0], marks[-1])
    parts = _frame(plot, marks, form, x_label)
    raw = " ".join(f"{plot.x(x):.1f},{plot.y(y):.1f}" for x, y in points)
    if smooth and len(points) > 20:
        parts.append(f'<polyline class="curve raw {tone}" points="{raw}"/>')
        averaged = _running_mean(values, max(2, len(values) // 60))
        line = " ".join(f"{plot.x(x):.1f},{plot.y(y):.1f}" for (x, _), y in zip(points, averaged, strict=True))
        last = averaged[-1]
    else:
        line, last = raw, values[-1]
    parts.append(f'<polyline class="curve {tone}" points="{line}"/>')
    if len(points) <= 60:
        parts += [_dot(tone, plot.x(x), plot.y(y), 2.6, f"{_whole(x)}: {form(y)}") for x, y in points]
    parts.append(_dot(tone, plot.x(points[-1][0]), plot.y(last), 3.8, form(last)))
    parts += [_ring(point.tone, plot.x(point.x), plot.y(point.y), f"{point.name}: {form(point.y)}") for point in beside]
    return _svg(plot.width, plot.height, parts)


class Series(NamedTuple):
    """One curve among several."""

    tone: str
    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]


def several_lines(series: Sequence[Series], *, x_label: str = "", form: Format = short) -> Markup:
    """Draw several curves over one pair of axes; each point says its curve's name. Missing values are left out."""
    curves = [
        (each, [(x, y) for x, y in zip(each.xs, each.ys, strict=True) if y is not None and math.isfinite(y)])
        for each in series
    ]
    points = [point for _, found in curves for point in found]
    if not points:
        return _nothing(*SMALL)
    marks = ticks(min(y for _, y in points), max(y for _, y in points))
    plot = Plot(*SMALL, 40, 10, 10, 26, min(x for x, _ in points), max(x for x, _ in points), marks[0], marks[-1])
    parts = _frame(plot, marks, form, x_label)
    for each, found in curves:
        line = " ".join(f"{plot.x(x):.1f},{plot.y(y):.1f}" for x, y in found)
        parts.append(f'<polyline class="curve {each.tone}" points="{line}"/>')
        shown = found if len(found) <= 60 else found[-1:]
        parts += [_dot(each.tone, plot.x(x), plot.y(y), 2.8, f"{each.name}, {_whole(x)}: {form(y)}") for x, y in shown]
    return _svg(plot.width, plot.height, parts)


class Bar(NamedTuple):
    """One bar with its interval."""

    tone: str
    name: str
    value: float | None
    interval: tuple[float, float] | None


def interval_bars(
    groups: Sequence[tuple[str, Sequence[Bar]]], *, form: Format = percent, ceiling: float | None = None
) -> Markup:
    """Draw groups of bars with interval whiskers and the value above each."""
    tops = [
        edge for _, bars in groups for bar in bars for edge in (bar.value, *(bar.interval or ())) if edge is not None
    ]
    if not tops:
        return _nothing(*MEDIUM)
    marks = ticks(0.0, max([*tops, ceiling or 0.0]))
    plot = Plot(*MEDIUM, 44, 8, 18, 26, 0, len(groups), marks[0], marks[-1])
    parts = _frame(plot, marks, form, "", x_marks=False)
    for position, (label, bars) in enumerate(groups):
        middle = plot.x(position + 0.5)
        width = min(46.0, (plot.width - plot.left - plot.right) / len(groups) / (len(bars) + 0.8))
        parts.append(_text(middle, plot.height - 10, label, "label", "middle"))
        for index, bar in enumerate(bars):
            if bar.value is None:
                continue
            centre = middle + (index - (len(bars) - 1) / 2) * (width + 4)
            top, base = plot.y(bar.value), plot.y(0)
            between = "" if bar.interval is None else f" ({form(bar.interval[0])} … {form(bar.interval[1])})"
            title = f"{bar.name}, {label}: {form(bar.value)}{between}"
            parts.append(_bar(f"bar {bar.tone}", centre - width / 2, top, width, max(base - top, 0.5), title, 3))
            crown = top
            if bar.interval is not None:
                low, high = (plot.y(edge) for edge in bar.interval)
                crown = high
                parts.append(f'<path class="whisker" d="M{centre:.1f} {low:.1f}V{high:.1f}"/>')
            parts.append(_text(centre, crown - 5, form(bar.value), "value", "middle"))
    return _svg(plot.width, plot.height, parts)


def stacked_columns(columns: Sequence[tuple[str, Mapping[str, float]]], order: Sequence[str]) -> Markup:
    """Draw one column of shares a category, stacked in `order` from below; classes are `status-<name>`."""
    if not columns:
        return _nothing(*WIDE)
    last = len(columns) - 1
    plot = Plot(*WIDE, 46, 8, 10, 28, -0.3, len(columns) + 0.3, 0.0, 1.0)
    parts = _frame(plot, [0.0, 0.25, 0.5, 0.75, 1.0], percent, "", x_marks=False)
    room = (plot.width - plot.left - plot.right) / (len(columns) + 0.6)
    width = min(64.0, room * 0.8)
    every = max(1, math.ceil(len(columns) / 20))
    for position, (label, shares) in enumerate(columns):
        # The first and the last column are of other problems than those between: they stand a little apart.
        apart = -0.25 if position == 0 else 0.25 if position == last else 0.0
        left, base = plot.x(position + 0.5 + apart) - width / 2, 0.0
        for status in order:
            share = shares.get(status, 0.0)
            if share <= 0:
                continue
            top, bottom = plot.y(base + share), plot.y(base)
            title = f"{label}: {status.replace('_', ' ')} {100 * share:.1f} %"
            parts.append(_bar(f"status-{status}", left, top, width, bottom - top, title))
            base += share
        near_an_end = position < every or position > last - every
        if position in (0, last) or (position % every == 0 and (every == 1 or not near_an_end)):
            parts.append(_text(left + width / 2, plot.height - 10, label, "label", "middle"))
    return _svg(plot.width, plot.height, parts)


def speed_histogram(series: Sequence[tuple[str, str, Sequence[float]]], total: Mapping[str, int]) -> Markup:
    """Draw speedups on a logarithmic axis; `series` is (tone, name, speedups), heights are shares of `total[name]`."""
    values = [value for _, _, speedups in series for value in speedups if value > 0]
    if not values:
        return _nothing(*WIDE)
    first = math.floor(max(min(math.log2(value) for value in values), -5.0) * 2) / 2
    last = math.ceil(min(max(math.log2(value) for value in values), 6.0) * 2 + 1e-9) / 2
    last = max(last, first + 2.0)
    bins = round((last - first) * 4)
    shares: list[list[float]] = []
    for _, name, speedups in series:
        counts = [0] * bins
        for value in speedups:
            if value > 0:
                counts[min(bins - 1, max(0, int((math.log2(value) - first) * 4)))] += 1
        shares.append([count / max(1, total[name]) for count in counts])
    marks = ticks(0.0, max(max(row) for row in shares))
    plot = Plot(*WIDE, 46, 10, 14, 30, first, last, marks[0], marks[-1])
    parts = _frame(plot, marks, percent, "", x_marks=False)
    for exponent in range(math.ceil(first), math.floor(last) + 1):
        label = f"{2.0**exponent:g}×"
        parts.append(_text(plot.x(exponent), plot.height - 12, label, "label", "middle"))
    if first <= 0 <= last:
        parts.append(f'<path class="parity" d="M{plot.x(0):.1f} {plot.top}V{plot.height - plot.bottom}"/>')
        parts.append(_text(plot.x(0) + 4, plot.top + 8, "as fast as PyTorch eager", "label", "start"))
    step = (plot.width - plot.left - plot.right) / bins
    width = (step - 3) / len(series)
    for index, ((tone, name, _), row) in enumerate(zip(series, shares, strict=True)):
        for position, share in enumerate(row):
            if share > 0:
                top, base = plot.y(share), plot.y(0)
                low, high = 2 ** (first + position / 4), 2 ** (first + (position + 1) / 4)
                left = plot.left + position * step + 1.5 + index * width
                title = f"{name}: {100 * share:.1f} % of trajectories, {low:.2f}× to {high:.2f}×"
                parts.append(_bar(f"bar {tone}", left, top, width, base - top, title, 1.5))
    return _svg(plot.width, plot.height, parts)


def difference_mark(value: float, interval: tuple[float, float], reach: float, tone: str) -> Markup:
    """Draw one difference with its interval around a zero line; `reach`: value at the edges, `tone`: colour."""
    width, height = 150.0, 20.0

    def place(edge: float) -> float:
        return width / 2 + max(-1.0, min(1.0, edge / reach)) * (width / 2 - 6)

    low, high = interval
    parts = [
        f'<path class="parity" d="M{width / 2} 1V{height - 1}"/>',
        f'<path class="interval {tone}" d="M{place(low):.1f} {height / 2}H{place(high):.1f}"/>',
        f'<circle class="point {tone}" cx="{place(value):.1f}" cy="{height / 2}" r="4"/>',
    ]
    return _svg(width, height, parts, fixed=True)


def _frame(plot: Plot, y_marks: Sequence[float], form: Format, x_label: str, x_marks: bool = True) -> list[str]:
    parts: list[str] = []
    for mark in y_marks:
        level = plot.y(mark)
        parts.append(f'<path class="grid" d="M{plot.left} {level:.1f}H{plot.width - plot.right}"/>')
        parts.append(_text(plot.left - 6, level + 3.5, form(mark), "label", "end"))
    if x_marks:
        base = plot.height - plot.bottom + 15
        parts.append(_text(plot.left, base, _whole(plot.x_low), "label", "start"))
        parts.append(_text(plot.width - plot.right, base, _whole(plot.x_high), "label", "end"))
        parts.append(_text((plot.left + plot.width - plot.right) / 2, base, x_label, "label", "middle"))
    return parts


def _dot(tone: str, x: float, y: float, radius: float, title: str) -> str:
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
    return f'<circle class="dot {tone}" {place}><title>{escape(title)}</title></circle>'


def _ring(tone: str, x: float, y: float, title: str) -> str:
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="4.6"'
    return f'<circle class="ring {tone}" {place}><title>{escape(title)}</title></circle>'


def _bar(kind: str, x: float, y: float, width: float, height: float, title: str, corner: float = 0) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.2f}"' + f' rx="{corner:g}"' * bool(corner)
    return f'<rect class="{kind}" {place}><title>{escape(title)}</title></rect>'


def _text(x: float, y: float, content: str, kind: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _whole(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _running_mean(values: Sequence[float], reach: int) -> list[float]:
    return [
        sum(window) / len(window)
        for window in (values[max(0, index - reach) : index + reach + 1] for index in range(len(values)))
    ]


def _nothing(width: float, height: float) -> Markup:
    return _svg(width, height, [_text(width / 2, height / 2, "nothing to draw", "label", "middle")])


def _svg(width: float, height: float, parts: Sequence[str], fixed: bool = False) -> Markup:
    size = f' width="{width:g}" height="{height:g}"' if fixed else ""
    opening = f'<svg viewBox="0 0 {width:g} {height:g}"{size} role="img" xmlns="http://www.w3.org/2000/svg">'
    return Markup(f"{opening}{''.join(parts)}</svg>")
