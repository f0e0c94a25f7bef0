"""The report's tables. A change is called one only if its interval lies on one side of zero."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tasks.agents.config import SLACK
from tasks.evaluation.agent_figures import FASTER
from tasks.evaluation.report.charts import difference_mark

_LINE = {
    "correct": "correct",
    "fast_1": "faster than eager",
    "mean_return": "mean return",
    "geomean_speedup": "speedup",
}
"""Figures that are told as soon as they are known."""


def direction(interval: list[float] | None) -> str:
    """Return `gain`, `loss`, or `unclear` where the interval holds zero or there is none."""
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "unclear"
    return "gain" if interval[0] > 0 else "loss"


_NAMES = {
    "correct": ("Correct", "the last turn's kernel computes the right values"),
    "compiled": ("Compiled", "the last turn's kernel compiles"),
    "mean_return": ("Mean return", "sum of an attempt's rewards, discounted: an early end costs the turns it saves"),
    "first_reward": ("Reward: first turn", "before any verdict was seen"),
    "mean_reward": ("Reward: final turn", "0 to 2.3 by default"),
    "geomean_speedup": ("Speedup", "over eager, geometric mean of correct kernels"),
    "mean_turns": ("Turns", "used until success or the limit"),
    "added_correct": ("Correct: later turns", "what turns after the first added"),
    "added_reward": ("Final reward: later turns", "what turns after the first added"),
    "first_correct": ("Correct: first turn", "before any verdict was seen"),
    "best_correct": ("Correct: best turn", "a correct kernel on any turn"),
    "best_reward": ("Reward: best turn", "for who keeps the best kernel of a conversation"),
    "found_reward": ("Reward: best of all samples", "for who keeps the best kernel of a problem's conversations"),
    "distinct_answers": ("Distinct first answers", "to one problem, of its samples"),
    "answer_nats": ("−ln p of first answers", "mean, in nats; of sampled answers their entropy"),
}
_REWARDS = ("mean_return", "first_reward", "mean_reward", "best_reward", "found_reward", "added_reward")
_TIMED = ("fast_", "geomean_speedup", *_REWARDS)
_SAME_AS_CORRECT = ("fast_0", "pass_1")
_OF_TURNS = (
    "mean_turns", "first_correct", "best_correct", "added_correct", "first_reward", "best_reward", "added_reward",
)  # fmt: skip
"""Figures that say nothing where each attempt has one turn."""
_NEUTRAL = ("mean_turns", "distinct_answers", "answer_nats")
"""Figures of which more is neither good nor bad by itself. Their differences are drawn on a scale for each."""
_PLAIN = (*_REWARDS, "geomean_speedup", *_NEUTRAL)
_ORDERED = (
    "correct", "fast_", "pass_", *_REWARDS, "geomean_speedup", "compiled", "mean_turns",
    "first_correct", "best_correct", "added_correct", "distinct_answers", "answer_nats",
)  # fmt: skip


def comparison_rows(heldout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row a figure: name, explanation, each policy's value and interval, the change and its mark.

    `harder`: the change on the harder problems, with its interval; None if there are none.
    """
    names = [name for name in heldout["before"] if f"{name}_ci" in heldout["before"] and name not in _SAME_AS_CORRECT]
    names = [name for prefix in _ORDERED for name in names if name.startswith(prefix)]
    policies = [policy for policy in ("before", "after", "control", "rejection") if policy in heldout]
    if all(heldout[policy].get("mean_turns") == 1 for policy in policies):
        names = [name for name in names if name not in _OF_TURNS]
    rows: list[dict[str, Any]] = []
    for name in names:
        title, explanation = _named(name)
        delta, interval = heldout.get(f"delta_{name}"), heldout.get(f"delta_{name}_ci")
        tone = "unclear" if name in _NEUTRAL else direction(interval)
        reach = _reach(heldout, [other for other in names if _scale(other) == _scale(name)])
        rows.append(
            {
                "name": name,
                "title": title,
                "explanation": explanation,
                "timed": name.startswith(_TIMED),
                "policies": [
                    (shown(name, heldout[policy].get(name)), interval_text(name, heldout[policy].get(f"{name}_ci")))
                    for policy in policies
                ],
                "change": change_text(name, delta),
                "change_interval": interval_text(name, interval, "+", " … "),
                "tone": tone,
                "mark": Markup("")
                if delta is None or interval is None
                else difference_mark(delta, (interval[0], interval[1]), reach, tone),
                "harder": _harder_change(heldout.get("harder"), name),
            }
        )
    return rows


def _scale(name: str) -> str:
    return name if name in _NEUTRAL else "plain" if name in _PLAIN else "share"


def change_text(name: str, delta: float | None) -> str:
    """Return a difference with its sign and unit: shares in points."""
    return "–" if delta is None else _digits(name, delta, "+") + " pts" * (name not in _PLAIN)


def _harder_change(harder: Mapping[str, Any] | None, name: str) -> tuple[str, str, str] | None:
    """Return change, interval and tone on the harder problems."""
    if harder is None:
        return None
    interval = harder.get(f"delta_{name}_ci")
    tone = "unclear" if name in _NEUTRAL else direction(interval)
    return change_text(name, harder.get(f"delta_{name}")), interval_text(name, interval, "+", " … "), tone


_TIERS = {"longer": "longer", "new_pairs": "unseen pairs of operators", "new_shapes": "other shapes"}


def group_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row a level or tier: problems, and correct, fast_1 and return before and after with intervals."""
    return [
        {
            "title": _TIERS.get(group, group),
            "n": before[group]["n"],
            "cells": [
                (shown(name, policy[group][name]), interval_text(name, policy[group][f"{name}_ci"]))
                for name in ("correct", "fast_1", "mean_return")
                for policy in (before, after)
            ],
        }
        for group in before
        if group in after
    ]


def turn_rows(policies: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[list[tuple[str, str]]]]:
    """Return one row a turn; in it, for each of four figures, value and small print of each policy.

    The figures: correct after the turn; what it added, with its interval; how much more often it mended a wrong kernel
    than a fresh answer was right, with the interval; negative log-probability of its answers, with that of the correct
    and of the wrong ones.
    """
    return [
        [[cell(policy[number] if number < len(policy) else {}) for policy in policies] for cell in _TURN_CELLS]
        for number in range(max(map(len, policies), default=0))
    ]


def _correct_after(turn: Mapping[str, Any]) -> tuple[str, str]:
    after = turn.get("after", {})
    return shown("correct", after.get("correct")), interval_text("correct", after.get("correct_ci"))


def _added(turn: Mapping[str, Any]) -> tuple[str, str]:
    added = turn.get("added", {})
    return change_text("correct", added.get("correct")), interval_text("correct", added.get("correct_ci"), "+", " … ")


def _repair(turn: Mapping[str, Any]) -> tuple[str, str]:
    repair = turn.get("repair") or {}
    return change_text("correct", repair.get("gain")), interval_text("correct", repair.get("gain_ci"), "+", " … ")


def _nats(turn: Mapping[str, Any]) -> tuple[str, str]:
    name, taken = "answer_nats", turn.get("taken", {})
    kinds = [taken.get(f"{name}_{kind}") for kind in ("correct", "wrong")]
    return shown(name, taken.get(name)), " / ".join(shown(name, value) for value in kinds) if any(kinds) else ""


_TURN_CELLS = (_correct_after, _added, _repair, _nats)


_AGENT_FIGURES = {
    "compiled": ("Compiled", "of the kernels that it wrote"),
    "correct": ("Correct", "of the kernels that it wrote"),
    "improved": ("Improved", f"of the kernels that it was given, by a reward of more than {SLACK:g}"),
    "worsened": ("Made worse", "of the kernels that it was given, by as much"),
    "mended": ("Mended", "of the wrong kernels that it was given"),
    "sped_up": ("Sped up", f"of the right kernels that it was given, more than {FASTER:g} times"),
    "added_reward": ("Added reward", "a turn, to the best kernel before it"),
    "stopped": ("Stopped", "of its turns after the first"),
    "stops_right": ("Rightly", "of its stops: no other attempt at the problem came further"),
}


def agent_tables(policies: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, str, list[str]]]]]:
    """Return for each role, who opens conversations first, rows of title, explanation and each policy's value.

    The figures are those of tasks.evaluation.agent_figures; rows without any value are left out.
    """
    measured = [policy.get("agents") or {} for policy in policies]
    roles = {role: max(agents.get(role, {}).get("first") or 0.0 for agents in measured) for role in _names_in(measured)}
    found: list[tuple[str, list[tuple[str, str, list[str]]]]] = []
    for role in sorted(roles, key=lambda role: (-roles[role], role)):
        rows = [
            (title, explanation, [shown(name, agents.get(role, {}).get(name)) for agents in measured])
            for name, (title, explanation) in _AGENT_FIGURES.items()
            if any(agents.get(role, {}).get(name) is not None for agents in measured)
        ]
        found.append((role, rows))
    return found


def _names_in(measured: Sequence[Mapping[str, Any]]) -> set[str]:
    return {role for agents in measured for role in agents}


def shown(name: str, value: float | None) -> str:
    """Return a figure with its unit: shares in percent, speedups with a ×."""
    unit = "×" if name == "geomean_speedup" else "" if name in _PLAIN else " %"
    return "–" if value is None else _digits(name, value) + unit


def heldout_line(folder: Path) -> str:
    """Return the main figures of an evaluation's folder in one line, with their intervals."""
    figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["overall"]
    parts = [
        f"{title} {shown(name, figures.get(name))}"
        + (f" ({interval})" if (interval := interval_text(name, figures.get(f"{name}_ci"))) else "")
        for name, title in _LINE.items()
        if figures.get(name) is not None
    ]
    return ", ".join(parts)


def interval_text(name: str, interval: list[float] | None, sign: str = "", between: str = " – ") -> str:
    """Return an interval in the unit of its figure; nothing for None."""
    return between.join(_digits(name, edge, sign) for edge in interval or ())


def _digits(name: str, value: float, sign: str = "") -> str:
    # `z`: nothing is shown as -0.00
    return f"{value:{sign}z.2f}" if name in _PLAIN else f"{100 * value:{sign}z.1f}"


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
