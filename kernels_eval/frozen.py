"""The base of every configuration and data model, and the marks that say which of its fields decide a result."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A value: immutable, hashable where its fields are, strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Operational:
    """Marks a setting that cannot change a result: `workers: Annotated[int, Operational]`.

    It changes where the work runs, how fast, and what is logged. Cache keys, the id of a run, the key of a verdict and
    the fingerprint of an interim checkpoint leave it out (`decisive_part`). In doubt a setting is not marked.
    """


class FileContent:
    """Marks a setting that names a file or folder of the user's: to a cache key its content counts, not its name."""


def decisive_part(model: BaseModel, of_file: Callable[[str], Any] = str) -> dict[str, Any]:
    """Return the part of a model that decides a result, as JSON values: all but the `Operational` fields, at any depth.

    `of_file` returns what stands for the name of a file (`FileContent`); by default the name itself.
    """
    fields = type(model).model_fields
    part: dict[str, Any] = model.model_dump(
        mode="json", exclude={name for name in fields if Operational in fields[name].metadata}
    )
    for name in part:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            part[name] = decisive_part(value, of_file)
        elif models := _models_in(value):
            part[name] = {key: decisive_part(item, of_file) for key, item in models.items()}
        elif value is not None and FileContent in fields[name].metadata:
            part[name] = of_file(value)
        else:
            part[name] = normalised(part[name])
    return part


def _models_in(value: Any) -> dict[str, BaseModel]:
    """Return a mapping of models; empty for any other value."""
    is_mapping = isinstance(value, dict) and all(isinstance(item, BaseModel) for item in value.values())
    return value if is_mapping else {}


def normalised(value: Any) -> Any:
    """Return JSON values in which equal numbers look equal: 64 for 64.0, 0 for -0.0.

    YAML, a form in a browser and a default in the code write the same number in different ways.
    """
    if isinstance(value, dict):
        return {key: normalised(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [normalised(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
