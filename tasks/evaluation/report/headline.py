"""The report's first sentence. A change is called one only if its interval lies on one side of zero.

Answers to the harder problems that got worse are said in the same place: a gain on problems like those of training can
hide them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tasks.evaluation.report.tables import direction


class Headline(NamedTuple):
    """The result in one sentence, and what else a reader should know at once."""

    sentence: str
    details: tuple[str, ...]
    tone: str
    """`gain`, `loss` or `unclear`."""


def headline(summary: Mapping[str, Any]) -> Headline:
    """Say what the run achieved on problems that it never trained on.

    The declared outcome comes first, then the share of correct kernels. Each other figure is that of sampled or of
    greedy answers, whichever gained less: sampling at a temperature flatters a policy that has become more certain, and
    greedy answers one that knows a single way.
    """
    kind, heldout = _weaker(summary, "correct")
    before, after = heldout["before"], heldout["after"]
    iterations = summary["sizes"]["iterations"]
    tone = direction(heldout["delta_correct_ci"])
    share = f"{_percent(after['correct'])} of the policy's {kind or ''} answers to unseen problems are correct kernels"
    if iterations == 0:
        sentence = f"Before any reinforcement learning, {share}."
    else:
        rounds = f"After {iterations} iteration{'s' if iterations > 1 else ''} of reinforcement learning"
        ending = {
            "gain": f"up from {_percent(before['correct'])}",
            "loss": f"down from {_percent(before['correct'])}",
            "unclear": f"against {_percent(before['correct'])} before: no clear change",
        }[tone]
        sentence = " ".join([f"{rounds}, {_primary_clause(summary)}{share}, {ending}.", *_harder_losses(summary)])
    estimated = ", by estimate," if summary["timing_source"] == "roofline" else ""
    details = [
        _weaker_change(summary, "mean_return", "Mean return{of}", _number),
        _weaker_change(
            summary, "fast_1", f"The share{{of}} that is correct and faster than PyTorch eager{estimated}", _percent
        ),
    ]
    if kind is not None:
        other = "sampled" if kind == "greedy" else "greedy"
        details.insert(
            0,
            _changed(_decodings(summary)[other], "correct", f"The share of {other} answers that is correct", _percent),
        )
    details += _harder(summary)
    if primary := _primary(summary):
        details.insert(0, primary)
    for among, control in _CONTROLS.items():
        if all(among in found for found in _decodings(summary).values()):
            details.append(_against_control(summary, among, control))
    _, weaker_return = _weaker(summary, "mean_return")
    declared = (summary.get("primary") or {}).get("delta_ci") or weaker_return["delta_mean_return_ci"]
    best = tone if tone != "unclear" else direction(declared)
    return Headline(sentence.replace("  ", " "), tuple(details), best)


_FIGURES = {
    "mean_reward": "final reward", "first_reward": "first reward", "best_reward": "best reward",
    "mean_return": "return", "correct": "share of correct kernels", "fast_1": "share faster than eager",
    "geomean_speedup": "speed-up",
}  # fmt: skip


def _primary_clause(summary: Mapping[str, Any]) -> str:
    """Return the beginning of the first sentence: the outcome that was declared, unless it is about correct kernels."""
    found = summary.get("primary")
    if not found or found["before"] is None or found["figure"] == "correct":
        return ""
    decoding = found["outcome"].split()[0]
    subject = f"the {_FIGURES[found['figure']]} of {decoding} answers"
    return f"{_primary_change(found, subject)[:-1]}, and "


def _primary(summary: Mapping[str, Any]) -> str:
    """Return the sentence on the outcome that was declared; nothing if the run has none, or did no RL."""
    found = summary.get("primary")
    if not found or found["before"] is None or not summary["sizes"]["iterations"]:
        return ""
    subject = f"The {_FIGURES[found['figure']]} of {found['outcome'].split()[0]} answers"
    if _primary_clause(summary):
        return f"{subject} is the declared primary outcome. All else is exploratory."
    return f"{_primary_change(found, f'{subject}, the declared primary outcome,')} All else is exploratory."


def _primary_change(found: Mapping[str, Any], subject: str) -> str:
    form = _percent if found["figure"] in ("correct", "fast_1") else _number
    return _change(subject, found["before"], found["after"], found["delta_ci"], form)


def _harder(summary: Mapping[str, Any]) -> list[str]:
    """Return the sentence on the harder problems, of the kind of answers that gained less; none without them."""
    harder = {kind: heldout.get("harder") for kind, heldout in _decodings(summary).items()}
    if not summary["sizes"]["iterations"] or not all(harder.values()):
        return []
    kind, part = min(
        ((kind, part) for kind, part in harder.items() if part),
        key=lambda found: (found[1]["delta_correct_ci"] or [0.0])[0],
    )
    of = f" of {kind} answers" if len(harder) > 1 else " of answers"
    return [_changed(part, "correct", f"On {part['n']} harder problems the share{of} that is correct", _percent)]


def _decodings(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the held-out figures by kind of answer; runs of earlier versions have sampled ones only."""
    found = {"sampled": summary["heldout"], "greedy": summary.get("heldout_greedy")}
    return {kind: heldout for kind, heldout in found.items() if heldout is not None}


def _weaker(summary: Mapping[str, Any], name: str, among: str | None = None) -> tuple[str | None, Mapping[str, Any]]:
    """Return the kind of answers whose figure gained less, with its figures; the kind is None if there is only one.

    `among`: the group of differences that is looked at; None: those after − before.
    """
    found = _decodings(summary)

    def gained(kind: str) -> tuple[int, float]:
        differences = found[kind] if among is None else found[kind][among]
        interval = differences[f"delta_{name}_ci"]
        return _ORDER[direction(interval)], (interval or [0.0])[0]

    kind = min(found, key=gained)
    return (kind if len(found) > 1 else None), found[kind]


_ORDER = {"loss": 0, "unclear": 1, "gain": 2}


def _harder_losses(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each figure that fell on the harder problems, of the answers that lost more."""
    found: list[str] = []
    for name, subject, form in (("correct", "correct share", _percent), ("mean_return", "mean return", _number)):
        losses = {
            kind: harder
            for kind, heldout in _decodings(summary).items()
            if (harder := heldout.get("harder")) and direction(harder.get(f"delta_{name}_ci")) == "loss"
        }
        if not losses:
            continue
        kind = min(losses, key=lambda kind: losses[kind][f"delta_{name}_ci"][0])
        before, after = (form(losses[kind][when][name]) for when in ("before", "after"))
        where = f"On {losses[kind]['n']} harder problems"
        found.append(f"{where} the {subject} of {kind} answers fell from {before} to {after}.")
    return found


def _weaker_change(summary: Mapping[str, Any], name: str, subject: str, form: Any) -> str:
    kind, heldout = _weaker(summary, name)
    return _changed(heldout, name, subject.format(of=f" of {kind} answers" if kind else ""), form)


def _changed(heldout: Mapping[str, Any], name: str, subject: str, form: Any) -> str:
    return _change(subject, heldout["before"][name], heldout["after"][name], heldout[f"delta_{name}_ci"], form)


def _change(subject: str, before: float | None, after: float | None, interval: list[float] | None, form: Any) -> str:
    if before is None or after is None:
        return f"{subject} could not be measured."
    match direction(interval):
        case "gain":
            return f"{subject} rose from {form(before)} to {form(after)}."
        case "loss":
            return f"{subject} fell from {form(before)} to {form(after)}."
        case _ if before == after:
            return f"{subject} stayed at {form(before)}."
        case _:
            return f"{subject} went from {form(before)} to {form(after)}, which sampling noise alone could explain."


_CONTROLS = {
    "over_control": "the control, which spent the same extra time on supervised fine-tuning",
    "over_rejection": "rejection sampling, which had about as many kernels judged",
}
"""By the key of the differences: the policy that RL's is compared with."""


def _against_control(summary: Mapping[str, Any], among: str, control: str) -> str:
    kind, heldout = _weaker(summary, "mean_return", among=among)
    interval = heldout[among]["delta_mean_return_ci"]
    comparison = {"gain": "beats", "loss": "is behind", "unclear": "cannot be told apart from"}[direction(interval)]
    by = f"By mean return of {kind} answers" if kind else "By mean return"
    return f"{by} it {comparison} {control}."


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.0f}\N{NO-BREAK SPACE}%"


def _number(value: float) -> str:
    return f"{value:.2f}"
