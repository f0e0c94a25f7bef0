"""Gives arguments of a constructor default values, as modules have them whose callers pass the first few alone."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Default:
    """An argument of the constructor that has a default value."""

    name: str
    value: str
    kind: str = "int"


def with_defaults(source: str, defaults: tuple[Default, ...]) -> str:
    """Return the module with these defaults in its constructor; an argument that it lacks comes last."""
    line = next((line for line in source.splitlines() if line.lstrip().startswith("def __init__(self")), "")
    typed, changed = ": " in line, line
    for default in defaults:
        kind = f": {default.kind} = " if typed else "="
        pattern = rf"(?<=, ){default.name}(: \w+)?(?=[,)])"
        if re.search(pattern, changed):
            changed = re.sub(pattern, f"{default.name}{kind}{default.value}", changed, count=1)
        else:
            changed = changed.replace("):", f", {default.name}{kind}{default.value}):")
    return source.replace(line, changed, 1) if line else source
