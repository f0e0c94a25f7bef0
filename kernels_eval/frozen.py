"""The base of every configuration and data model, and the marks that say which of its fields decide a result."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
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


class Experimental:
    """Marks a setting, or a group, for replaying the formulas of other frameworks and for experiments.

    Most runs leave it at its default. The reference lists it apart; nothing else depends on the mark.
    """


class AddedLater:
    """Marks a setting that came after runs were made: at its default it counts in no key, so that theirs stay.

    Only for a default with which everything is as it was before.
    """


class FileContent:
    """Marks a setting that names a file or folder of the user's: to a cache key its content counts, not its name."""


class NamesCode(ABC):
    """Base of marks of settings that name code (kernels_eval.doors): its source can count in a key."""

    @abstractmethod
    def source_of(self, value: str) -> str:
        """Return the digest of the source that a value names. Raises InputError if there is none."""

    @abstractmethod
    def verify(self, value: str) -> None:
        """Import what a value names, if it is not ours. Raises InputError if that is impossible."""

    @abstractmethod
    def is_ours(self, value: str) -> bool:
        """True if the source that a value names belongs to this package."""


def name_alone(mark: NamesCode, value: str) -> str:
    """Return the value itself: the source behind it does not count."""
    return value


def with_source(mark: NamesCode, value: str) -> str:
    """Return the value and the digest of the source behind it."""
    return f"{value} {mark.source_of(value)}"


def with_foreign_source(mark: NamesCode, value: str) -> str:
    """Return as `with_source`, but for what is ours the value alone: for keys that know the version of our code."""
    return value if mark.is_ours(value) else with_source(mark, value)


def mark_of_code(metadata: Iterable[Any]) -> NamesCode | None:
    """Return the mark of a setting that names code, from the metadata of its annotation; None if it names none."""
    return next((mark for mark in metadata if isinstance(mark, NamesCode)), None)


def named_code(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, NamesCode, str]]:
    """Yield (dotted path of the setting, its mark, its value) of all settings of a model that name code."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from named_code(value, f"{prefix}{name}.")
        elif value is not None and (mark := mark_of_code(field.metadata)) is not None:
            yield f"{prefix}{name}", mark, value


def decisive_part(
    model: BaseModel,
    of_file: Callable[[str], Any] = str,
    of_code: Callable[[NamesCode, str], Any] = name_alone,
) -> dict[str, Any]:
    """Return the part of a model that decides a result, as JSON values, at any depth.

    That is all but the `Operational` fields, and those `AddedLater` that have their default.

    `of_file` returns what stands for the name of a file (`FileContent`), `of_code` for a name of code (`NamesCode`); by
    default the name itself.
    """
    fields = type(model).model_fields
    part: dict[str, Any] = model.model_dump(mode="json", exclude={name for name in fields if _is_silent(model, name)})
    for name in part:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            part[name] = decisive_part(value, of_file, of_code)
        elif models := _models_in(value):
            part[name] = {key: decisive_part(item, of_file, of_code) for key, item in models.items()}
        elif value is not None and FileContent in fields[name].metadata:
            part[name] = of_file(value)
        elif value is not None and (mark := mark_of_code(fields[name].metadata)) is not None:
            part[name] = of_code(mark, value)
        else:
            part[name] = normalised(part[name])
    return part


def _is_silent(model: BaseModel, name: str) -> bool:
    """True for a field that counts in no key."""
    field = type(model).model_fields[name]
    is_as_before = AddedLater in field.metadata and getattr(model, name) == field.get_default(call_default_factory=True)
    return is_as_before or Operational in field.metadata


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
