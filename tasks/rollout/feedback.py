"""Feedback on a verdict for a later turn: functions (verdict, reward) -> text, by name (`rollout.episode.feedback`).

`full` is the whole verdict; `brief` is at most two short lines of a small vocabulary; `none` is no feedback at all.
`reward` is the verdict's, without terms on the answer.
"""

from kernels_eval.errors import InputError
from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.rollout.config import FEEDBACK

_ERROR_CHARACTERS = 2000
"""Error text kept in feedback: its beginning (what was tried) and its end (what went wrong)."""
_MOST_ISSUES = 5


def feedback_text(verdict: Verdict, reward: float, style: str) -> str:
    """Return the feedback on a verdict in a style. Raises InputError if a function of the user's gives no text."""
    found = FEEDBACK.load(style)(verdict, reward)
    if not isinstance(found, str):
        raise InputError(f"rollout.episode.feedback: {style} returned {type(found).__name__}, expected text")
    return found


def none(verdict: Verdict, reward: float) -> str:
    """Return no feedback: the policy is asked for another kernel (an ablation)."""
    return ""


def brief(verdict: Verdict, reward: float) -> str:
    """Return at most two lines: status, and cause or speedup. Few distinct lines: each can be one token."""
    if verdict.status is Status.CORRECT:
        return "correct" if verdict.speedup is None else f"correct\nspeedup {_rounded(verdict.speedup)}"
    cause = verdict.rejection_reason or verdict.error_category
    return f"{verdict.status.value}\n{cause}" if cause else verdict.status.value


def full(verdict: Verdict, reward: float) -> str:
    """Return the whole verdict: status, times, resources, issues, warnings and the judge's message."""
    lines = [
        "Your kernel was judged.",
        f"Status: {verdict.status.value}",
        f"Compiled: {'yes' if verdict.compiled else 'no'}",
        f"Correct: {'yes' if verdict.correct else 'no'}",
    ]
    mark = " (roofline estimate)" if verdict.timing_source is TimingSource.ROOFLINE else ""
    if verdict.candidate_ms is not None:
        reference = "" if verdict.reference_ms is None else f", reference {verdict.reference_ms:.4g} ms"
        lines.append(f"Runtime: {verdict.candidate_ms:.4g} ms{reference}{mark}")
    if verdict.speedup is not None:
        lines.append(f"Speedup: {verdict.speedup:.2f}x{mark}")
    lines.append(f"Score: {reward:.3f}")
    if verdict.rejection_reason:
        lines.append(f"Broken rule: {verdict.rejection_reason}")
    if verdict.error_category:
        lines.append(f"Error: {verdict.error_category}")
    for use in verdict.resources:
        counted = {"registers": use.registers, "bytes of shared memory": use.shared_bytes, "spills": use.spills}
        parts = [f"{count} {unit}" for unit, count in counted.items() if count is not None]
        if parts:
            lines.append(f"Resources of {use.kernel} on {use.architecture}: {', '.join(parts)}")
    for issue in verdict.issues[:_MOST_ISSUES]:
        place = "" if issue.kernel is None else f" in {issue.kernel}"
        lines.append(f"Issue{place}: {issue.message}; {issue.remedy}.")
    for cell in verdict.cells:
        gain = "" if cell.speedup is None else f", {cell.speedup:.2f}x{mark}"
        lines.append(f"At {cell.workload}: {cell.error_category or cell.status.value}{gain}")
    lines += [f"Warning: {warning}." for warning in verdict.warnings]
    if verdict.error_message:
        lines += ["Message:", _shortened(verdict.error_message)]
    return "\n".join(lines)


def _rounded(speedup: float) -> str:
    """Return one decimal below 10, none above, at most 99: a small vocabulary."""
    return f"{speedup:.1f}" if speedup < 9.95 else f"{min(speedup, 99.0):.0f}"


def _shortened(text: str) -> str:
    text = text.strip()
    if len(text) <= _ERROR_CHARACTERS:
        return text
    half = _ERROR_CHARACTERS // 2
    return f"{text[:half].rstrip()}\n[…]\n{text[-half:].lstrip()}"
