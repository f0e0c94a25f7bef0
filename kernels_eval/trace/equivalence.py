"""Judge's worker: compares traced programs: equal to each other, or equal but for the size.

A forward call is traced without values: its program holds everything that the host code does. If calls on equal shapes
give different programs, the host code keeps state. That is honest if a weight is transposed once, and dishonest if an
old result is returned. If calls at different sizes launch other kernels, or the same with other compile-time constants,
the host code branches on the size of its input: a check at one size then says nothing about the other.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from kernels_eval.trace.schema import FIRST_OWN, Constexpr, LaunchKernel, Operate, Plain, TraceAnswer, Value, View

Step = tuple[Any, ...]
_STORAGE = re.compile(r'"storage": (\d+)')
_OWN_DIGITS = len(str(FIRST_OWN))


def fingerprint(raw: Mapping[str, Any], payload: bytes | bytearray) -> str:
    """Return a digest of a program: equal for the same commands on the same shapes and constants.

    Storages are numbered by their order. Programs are taken unchecked: an invalid one has a digest too.
    """
    numbers: dict[str, str] = {}

    def renumbered(found: re.Match[str]) -> str:
        storage = found[1]
        if len(storage) < _OWN_DIGITS or (len(storage) == _OWN_DIGITS and int(storage) < FIRST_OWN):
            return found[0]
        return numbers.setdefault(storage, f'"storage": own {len(numbers)}')

    commands: Any = raw.get("commands")
    if isinstance(commands, list):
        commands = [
            command for command in commands if not (isinstance(command, dict) and command.get("kind") == "free")
        ]
    try:
        text = json.dumps([commands, raw.get("outputs"), raw.get("structure"), bool(raw.get("kernels"))])
    except RecursionError:
        return "too deep"
    return hashlib.sha256(_STORAGE.sub(renumbered, text).encode() + bytes(payload)).hexdigest()


def uses_older_storage(trace: TraceAnswer) -> bool:
    """Return True if kernels get memory that the host code allocated in an earlier call or while it was loaded."""
    made: set[int] = set()
    for command in trace.commands:
        if isinstance(command, Operate):
            made |= {view.storage for view in command.results if view is not None}
        elif isinstance(command, LaunchKernel):
            for value in command.arguments.values():
                if isinstance(value, View) and value.storage >= FIRST_OWN and value.storage not in made:
                    return True
    return False


def steps(trace: TraceAnswer, constexprs: Mapping[int, frozenset[str]]) -> list[Step]:
    """Return the steps of a program in order, without sizes, and last the outputs.

    Operators have their names, launches their compile-time constants.
    """
    found: list[Step] = []
    for command in trace.commands:
        if isinstance(command, Operate):
            found.append(("operate", command.name, command.overload))
        elif isinstance(command, LaunchKernel):
            names = constexprs[command.kernel]
            constants = {name: _constant(value) for name, value in command.arguments.items() if name in names}
            found.append(("launch", command.kernel, constants))
    sizes: dict[str, Any] = {}
    for index, output in enumerate(trace.outputs):
        sizes[f"{index}"] = output.view.dtype if output.view is not None else output.type
        sizes |= {f"{index}.{axis}": size for axis, size in enumerate(output.view.shape if output.view else ())}
    return [*found, ("outputs", len(trace.outputs), sizes)]


def _constant(value: Value | Constexpr) -> Any:
    return value.value if isinstance(value, Plain) else value.model_dump_json()


def is_same_at(small: list[Step], large: list[Step], factor: float) -> bool:
    """Return True if `large` is `small` at `factor` times the size. Constants may stay, or grow with the size."""
    if len(small) != len(large):
        return False
    return all(
        first[:2] == second[:2] and (first[0] == "operate" or _constants_agree(first[2], second[2], factor))
        for first, second in zip(small, large, strict=True)
    )


def _constants_agree(small: Mapping[str, Any], large: Mapping[str, Any], factor: float) -> bool:
    return small.keys() == large.keys() and all(_grows(small[name], large[name], factor) for name in small)


def _grows(small: Any, large: Any, factor: float) -> bool:
    if type(small) is type(large) and small == large:
        return True
    if type(small) is not int or type(large) is not int or small <= 0:
        return False
    return 0.5 * factor <= large / small <= 2.0 * factor
