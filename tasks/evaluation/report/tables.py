"""The report's headline and tables. A change is called one only if its interval lies on one side of zero."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from tasks.evaluation.report.charts import difference_mark


class Headline(NamedTuple):
    """The result in one sentence, and what else a reader should know at once."""

    sentence: str
    details: tuple[str, ...]
    tone: str
    """`gain`, `loss` or `unclear`."""


def direction(interval: list[float] | None) -> str:
    """Return `gain`, `loss`, or `unclear` where the interval holds zero or there is none."""
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "unclear"
    return "gain" if interval[0] > 0 else "loss"


def headline(summary: Mapping[str, Any]) -> Headline:
    """Say what the run achieved on problems that it never trained on."""
    heldout = summary["heldout"]
    before, after = heldout["before"], heldout["after"]
    iterations = summary["sizes"]["iterations"]
    tone = direction(heldout["delta_correct_ci"])
    share = f"{_percent(after['correct'])} of the policy's attempts at unseen problems are correct kernels"
    if iterations == 0:
        sentence = f"Before any reinforcement learning, {share}."
    else:
        rounds = f"After {iterations} iteration{'s' if iterations > 1 else ''} of reinforcement learning"
        ending = {
            "gain": f"up from {_percent(before['correct'])}",
            "loss": f"down from {_percent(before['correct'])}",
            "unclear": f"against {_percent(before['correct'])} before: no clear change",
        }[tone]
        sentence = f"{rounds}, {share}, {ending}."
    details = [
        _change("Mean return", before["mean_return"], after["mean_return"], heldout["delta_mean_return_ci"], _number),
        _change(
            "The share that is correct and faster than PyTorch eager"
            + (", by estimate," if summary["timing_source"] == "roofline" else ""),
            before["fast_1"],
            after["fast_1"],
            heldout["delta_fast_1_ci"],
            _percent,
        ),
    ]
    if "over_control" in heldout:
        details.append(_against_control(heldout["over_control"]))
    best = tone if tone != "unclear" else direction(heldout["delta_mean_return_ci"])
    return Headline(sentence, tuple(details), best)


def _change(subject: str, before: float | None, after: float | None, interval: list[float] | None, form: Any) -> str:
    if before is None or after is None:
        return f"{subject} could not be measured."
    match direction(interval):
        case "gain":
            return f"{subject} rose from {form(before)} to {form(after)}."
        case "loss":
            return f"{subject} fell from {form(before)} to {form(after)}."
        case _:
            return f"{subject} went from {form(before)} to {form(after)}, which sampling noise alone could explain."


def _against_control(over: Mapping[str, Any]) -> str:
    interval = over["delta_mean_return_ci"]
    comparison = {"gain": "beats", "loss": "is behind", "unclear": "cannot be told apart from"}[direction(interval)]
    return f"By mean return it {comparison} the control, which spent the same extra time on supervised fine-tuning."


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.0f}\N{NO-BREAK SPACE}%"


def _number(value: float) -> str:
    return f"{value:.2f}"


_NAMES = {
    "correct": ("Correct", "the last turn's kernel computes the right values"),
    "compiled": ("Compiled", "the last turn's kernel compiles"),
    "mean_return": ("Mean return", "discounted rewards of an attempt: what RL maximises"),
    "mean_reward": ("Mean final reward", "reward of the last turn, 0 to 2.3 by default"),
    "geomean_speedup": ("Speedup", "over eager, geometric mean of correct kernels"),
    "mean_turns": ("Turns", "used until success or the limit"),
}
_TIMED = ("fast_", "geomean_speedup", "mean_return", "mean_reward")
_SAME_AS_CORRECT = ("fast_0", "pass_1")
_PLAIN = ("mean_return", "mean_reward", "mean_turns", "geomean_speedup")


def comparison_rows(heldout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row a figure: name, explanation, each policy's value and interval, the change and its mark."""
    names = [name for name in heldout["before"] if f"{name}_ci" in heldout["before"] and name not in _SAME_AS_CORRECT]
    order = ["correct", "fast_", "pass_", "mean_return", "mean_reward", "geomean_speedup", "compiled", "mean_turns"]
    names = [name for prefix in order for name in names if name.startswith(prefix)]
    reach = {plain: _reach(heldout, [name for name in names if (name in _PLAIN) is plain]) for plain in (True, False)}
    rows: list[dict[str, Any]] = []
    for name in names:
        title, explanation = _named(name)
        delta, interval = heldout.get(f"delta_{name}"), heldout.get(f"delta_{name}_ci")
        # Fewer turns are neither good nor bad by themselves.
        tone = "unclear" if name == "mean_turns" else direction(interval)
        rows.append(
            {
                "name": name,
                "title": title,
                "explanation": explanation,
                "timed": name.startswith(_TIMED),
                "policies": [
                    (shown(name, heldout[policy].get(name)), interval_text(name, heldout[policy].get(f"{name}_ci")))
                    for policy in ("before", "after", "control")
                    if policy in heldout
                ],
                "change": "–" if delta is None else _digits(name, delta, "+") + " pts" * (name not in _PLAIN),
                "change_interval": interval_text(name, interval, "+", " … "),
                "tone": tone,
                "mark": Markup("")
                if delta is None or interval is None
                else difference_mark(delta, (interval[0], interval[1]), reach[name in _PLAIN], tone),
            }
        )
    return rows


def level_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row a level: problems, and correct and fast_1 before and after with intervals."""
    return [
        {
            "level": level,
            "n": before[level]["n"],
            "cells": [
                (shown(name, policy[level][name]), interval_text(name, policy[level][f"{name}_ci"]))
                for name in ("correct", "fast_1", "mean_return")
                for policy in (before, after)
            ],
        }
        for level in before
        if level in after
    ]


def shown(name: str, value: float | None) -> str:
    """Return a figure with its unit: shares in percent, speedups with a ×."""
    unit = "×" if name == "geomean_speedup" else "" if name in _PLAIN else " %"
    return "–" if value is None else _digits(name, value) + unit


def interval_text(name: str, interval: list[float] | None, sign: str = "", between: str = " – ") -> str:
    """Return an interval in the unit of its figure; nothing for None."""
    return between.join(_digits(name, edge, sign) for edge in interval or ())


def _digits(name: str, value: float, sign: str = "") -> str:
    return f"{value:{sign}.2f}" if name in _PLAIN else f"{100 * value:{sign}.1f}"


def _named(name: str) -> tuple[str, str]:
    kind, _, number = name.partition("_")
    if kind == "fast":
        return f"fast {number}", f"correct and more than {number}× as fast as eager"
    if kind == "pass":  # pass_1 is `correct`
        return f"pass@{number}", "solved by at least one of the samples"
    return _NAMES[name]


def _reach(heldout: Mapping[str, Any], names: list[str]) -> float:
    """Return the value at the edges of the marks of these figures: they share a scale."""
    edges = [abs(edge) for name in names for edge in heldout.get(f"delta_{name}_ci") or ()]
    return max([*edges, 1e-9]) * 1.05
