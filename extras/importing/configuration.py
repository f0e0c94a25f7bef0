"""Another trainer's settings as a configuration of ours: which trainer they are of, our lines, and the YAML text."""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from extras.importing.flags import Found
from extras.importing.rules import Line, Trainer
from extras.importing.slime import SLIME
from extras.importing.trl import TRL
from extras.importing.verl import VERL
from kernels_eval.errors import InputError

TRAINERS = {"slime": SLIME, "tritonforge": SLIME, "verl": VERL, "trl": TRL}
"""By the name that people give."""
_GROUPS = (
    "name", "seed", "iterations", "problems", "model", "sft", "rollout", "judge", "update", "evaluation", "tracking",
)  # fmt: skip
"""Order of the groups in the file, as shipped configurations have it."""


@dataclass(frozen=True)
class Imported:
    """A configuration made of another trainer's settings, and what was left over."""

    trainer: str
    lines: tuple[Line, ...]
    needless: dict[str, str]
    """Foreign names that need no setting here, with the reason."""
    not_understood: dict[str, str]
    """Foreign names that are left out, with the reason; empty: no rule knows the name."""

    @property
    def values(self) -> dict[str, Any]:
        """Our settings as nested mappings."""
        nested: dict[str, Any] = {}
        for line in self.lines:
            *groups, last = line.setting.split(".")
            target = nested
            for group in groups:
                target = target.setdefault(group, {})
            target[last] = line.value
        return nested


def imported(found: Found, name: str | None = None) -> Imported:
    """Return our settings for those of another trainer.

    `name`: of the trainer; none: the one whose settings most names are. Raises InputError if none knows a name, or a
    value is not one that it takes.
    """
    trainer = _trainer_of(found) if name is None else TRAINERS[name]
    values = {_spelled(trainer, key): value for key, value in found.values.items()}
    lines: dict[str, Line] = {}
    needless: dict[str, str] = {}
    not_understood = {_spelled(trainer, key): reason for key, reason in found.unknown.items()}
    for key, value in values.items():
        if key in trainer.rules:
            lines |= {line.setting: line for line in trainer.rules[key](key, value)}
        elif (reason := _needless(trainer, key)) is not None:
            needless[key] = reason
        elif key not in trainer.used:
            not_understood[key] = ""
    lines |= {line.setting: line for line in trainer.derived(values)}
    ordered = sorted(lines.values(), key=_place)
    return Imported(trainer.name, tuple(ordered), needless, not_understood)


def text_of(found: Imported, title: str, name: str) -> str:
    """Return the YAML text: each setting with its origin and what differs, then what was left out.

    `title`: the first comment; `name`: that of the run.
    """
    parts = [f"# {title}", f"name: {name}"]
    before: list[str] = []
    for line in found.lines:
        *groups, last = line.setting.split(".")
        shared = next((i for i, pair in enumerate(zip(before, groups, strict=False)) if len({*pair}) > 1), None)
        first = min(len(before), len(groups)) if shared is None else shared
        parts += [f"{'  ' * depth}{groups[depth]}:" for depth in range(first, len(groups))]
        parts.append(f"{'  ' * len(groups)}{last}: {_scalar(line.value)}  # {_one_line(line.remark)}")
        before = groups
    for heading, names in (
        ("Not understood, and left out:", found.not_understood),
        ("Needs no setting:", found.needless),
    ):
        if names:
            parts += ["", f"# {heading}"]
            parts += [
                f"#   {_one_line(key)}{f': {_one_line(reason)}' if reason else ''}" for key, reason in names.items()
            ]
    return "\n".join(parts) + "\n"


def _trainer_of(found: Found) -> Trainer:
    names = [*found.values, *found.unknown]

    def known(trainer: Trainer) -> int:
        spelled = [_spelled(trainer, name) for name in names]
        return sum(name in trainer.rules or name in trainer.used or name in trainer.needless for name in spelled)

    best = max(TRAINERS.values(), key=known)
    if not known(best):
        shown = ", ".join(_one_line(name) for name in names[:4])
        raise InputError(
            f"expected settings of slime, TritonForge, verl or TRL, found none among {len(names)} ({shown})"
        )
    return best


def _needless(trainer: Trainer, key: str) -> str | None:
    if key in trainer.needless:
        return None if key in trainer.used else trainer.needless[key]
    return next((reason for start, reason in trainer.prefixes.items() if key.startswith(start)), None)


def _spelled(trainer: Trainer, name: str) -> str:
    """Return a name as the trainer's documentation has it: argparse takes both signs."""
    if trainer is SLIME:
        return name.replace("_", "-")
    return name.replace("-", "_") if trainer is TRL else name


def _place(line: Line) -> tuple[int, str]:
    """Sort by group; values of a group before its groups."""
    first, *rest = line.setting.split(".")
    place = _GROUPS.index(first) if first in _GROUPS else len(_GROUPS)
    return place, ".".join([first, *(f"\x7f{part}" for part in rest[:-1]), *rest[-1:]])


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        mantissa, _, exponent = repr(value).partition("e")
        return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{exponent}" if exponent else repr(value)
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).strip().removesuffix("...").strip()


def _one_line(words: str) -> str:
    return re.sub(r"[^\x20-\x7e\xa0-\uffff]+", " ", words).strip()[:200]
