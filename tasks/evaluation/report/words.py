"""What the figures mean, in words. A change is called one only where its interval lies on one side of zero."""

from collections.abc import Mapping
from typing import Any, NamedTuple


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
    comparison = {
        "gain": "beats",
        "loss": "is behind",
        "unclear": "cannot be told apart from",
    }[direction(interval)]
    return f"By mean return it {comparison} the control, which spent the same extra time on supervised fine-tuning."


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.0f}\N{NO-BREAK SPACE}%"


def _number(value: float) -> str:
    return f"{value:.2f}"
