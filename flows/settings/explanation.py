"""Sentences about a wrong setting: its dotted path, the value found and expected, the nearest valid name."""

import difflib
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kernels_eval.expectations import place_of, refusal


def explain(error: ValidationError, root: type[BaseModel]) -> str:
    """Return one sentence about the first error: dotted path, value found, value expected, nearest valid name."""
    found = error.errors(include_url=False)
    if found[0]["type"] != "extra_forbidden":
        return refusal(error)
    sentence = f"{place_of(found[0])}: unknown setting{_nearest(found[0]['loc'], root)}"
    return sentence + (f" (and {len(found) - 1} more)" if len(found) > 1 else "")


def setting_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every setting and group of settings."""
    for name, field in model.model_fields.items():
        yield prefix + name
        inner = settings_group(field.annotation)
        if inner is not None:
            yield from setting_names(inner, f"{prefix}{name}.")


def _nearest(location: tuple[int | str, ...], root: type[BaseModel]) -> str:
    """Suggest a valid name: the most similar one in the same group, else the same name elsewhere in the tree."""
    *parents, unknown = (str(part) for part in location)
    group: type[BaseModel] | None = root
    for parent in parents:
        field = group.model_fields.get(parent) if group is not None else None
        group = settings_group(field.annotation) if field is not None else None
    siblings = list(group.model_fields) if group is not None else []
    prefix = ".".join([*parents, ""])
    close = difflib.get_close_matches(unknown, siblings, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    elsewhere = {name: name.rpartition(".")[2] for name in setting_names(root)}
    if close := difflib.get_close_matches(unknown, elsewhere.values(), n=1, cutoff=0.8):
        same = sorted((name for name, last in elsewhere.items() if last == close[0]), key=lambda name: name.count("."))
        return f"; did you mean {' or '.join(same[:3])}?"
    return f"; {'there are' if prefix else 'at the top there are'} {', '.join(prefix + name for name in siblings)}"


def settings_group(annotation: Any) -> type[BaseModel] | None:
    """Return the settings model in an annotation such as `Inner` or `Inner | None`."""
    candidates = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
