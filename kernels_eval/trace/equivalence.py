"""Judge's worker: tells traced programs of equal shapes apart, and finds those that use memory of earlier calls.

A forward call is traced without values: its program holds everything that the host code does. If calls on equal shapes
give different programs, the host code keeps state. That is honest if a weight is transposed once, and dishonest if an
old result is returned. Programs of different sizes: kernels_eval.trace.continuation.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from kernels_eval.trace.schema import FIRST_OWN, LaunchKernel, Operate, TraceAnswer

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
    """Return True if the program uses memory that the host code allocated in an earlier call or while it was loaded.

    Kernels may get it directly, in a tuple or a descriptor, or by a copy that PyTorch makes.
    """
    made: set[int] = set()
    for command in trace.commands:
        given = command.storages - made if isinstance(command, Operate | LaunchKernel) else ()
        if any(storage >= FIRST_OWN for storage in given):
            return True
        if isinstance(command, Operate):
            made |= {view.storage for view in command.results if view is not None}
    return False


def made_by(trace: TraceAnswer) -> set[int]:
    """Return the storages that operators of a program make, which it has not taken before."""
    made: set[int] = set()
    taken: set[int] = set()
    for command in trace.commands:
        if isinstance(command, Operate | LaunchKernel):
            taken |= command.storages
        if isinstance(command, Operate):
            made |= {view.storage for view in command.results if view is not None} - taken
    return made
