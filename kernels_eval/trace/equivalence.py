"""What two traced programs have in common: whether one is the other over again, and whether one is the other at another size.

A forward call is traced without values, so a program says all that the host code does. Calls on equal shapes that ask for
different programs come from host code that remembers: which is honest where a weight is transposed once, and is not where
an old result is returned. Calls at different sizes that launch other kernels, or the same with other compile-time constants, come from
host code that asks how large its input is; what was seen at the one size then says nothing of the other.
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
    """Name a program: the same name, the same commands on the same shapes and constants. Storages count by their order.

    Takes programs as they came, unchecked: one that makes no sense has a name too.
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
    """True where kernels are passed memory of the host code's own that an earlier call, or loading, made."""
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
    """Return what a program does, in order, without the sizes: operators by name, launches with their compile-time constants; last the outputs."""
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
    """True where one program is the other at `factor` times the size. Constants may stay, or grow as the size does."""
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
