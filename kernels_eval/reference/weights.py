"""Worker process: a reference's parameters and buffers: matched with a candidate's, and varied where they are constant.

Tensors in plain attributes (`self.h0 = torch.randn(…)`) are matched by their full name alone, on either side: a
candidate keeps what it likes in others.

A constant parameter (the ones and zeros that a normalisation starts with) or running statistic would hide a kernel that
ignores it. Training changes these values, therefore the judge does too.
"""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from kernels_eval.sandbox.messages import StateAnswer
from kernels_eval.sandbox.module_state import plain_attributes, registered_state
from kernels_eval.sandbox.tensor_bytes import DTYPES, NAMES

Form = tuple[str, tuple[int, ...]]
"""Dtype by PyTorch's name, and shape."""
Forms = Mapping[str, Form]
"""Those of tensors, by name."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
_PARAMETER_NOISE = 0.2
_LOOKED_AT = 4096
_LEAST_RUN = 6
"""Elements of a row that are sorted by chance once in 360 draws, for both directions."""
_FLIPPED = 0.25


@dataclass(frozen=True)
class WeightMatch:
    """Correspondence of a reference's parameters and buffers with a candidate's."""

    names: dict[str, str]
    """Name in the reference -> name in the candidate."""
    missing: tuple[str, ...]
    """Names in the reference that the candidate has nothing for."""
    as_registered: frozenset[str] = frozenset()
    """Names in the candidate of those that are set as they are registered, though they were drawn otherwise."""


@dataclass(frozen=True)
class GivenWeights:
    """The reference's values for a candidate, by its names."""

    own: dict[str, torch.Tensor]
    """In the reference's dtypes: a candidate's may take more memory than its tensors do."""
    as_registered: frozenset[str] = frozenset()
    """As a `WeightMatch` has it."""
    dtypes: Mapping[str, torch.dtype] = field(default_factory=lambda: NOTHING)
    """The candidate's."""

    @property
    def values(self) -> dict[str, torch.Tensor]:
        """Return the values in the candidate's dtypes."""
        return {name: value.to(self.dtypes[name]) for name, value in self.own.items()}


def match_weights(
    wanted: Mapping[str, torch.Tensor],
    state: Forms,
    wanted_plain: Mapping[str, torch.Tensor] = NOTHING,
    plain: Forms = NOTHING,
    registered: Forms = NOTHING,
    turned: Callable[[], Collection[str]] = frozenset,
) -> WeightMatch:
    """Match by name; what is left by the last part of the name, shape and order; then by shape and order alone.

    `wanted`: the reference's parameters and buffers. `state`: forms of the candidate's. `wanted_plain`, `plain`: the
    same for plain attributes; the reference's are never missing. `registered`: forms, as they are registered, of some
    in `state` that were drawn otherwise; they count where the reference has one of that name and form. Dtypes have to
    be the same, or both floating-point. `turned`: returns the reference's names that were drawn otherwise there too: in
    a square form a candidate's is set as it is registered for these alone.
    """
    drawn, registered = state, {name: form for name, form in registered.items() if name in state}
    named = {
        name: form
        for name, form in registered.items()
        if name in wanted and _fits(name, wanted[name], name, form, True)
    }
    state = {**state, **named}
    held, given = {**plain, **state}, {**wanted_plain, **wanted}
    names = {name: name for name in given if name in held and _form(given[name]) == _comparable(held[name])}
    for with_name in (True, False):
        free = [name for name in state if name not in names.values()]
        for name in wanted:
            if name in names:
                continue
            found = next((other for other in free if _fits(name, wanted[name], other, state[other], with_name)), None)
            if found is not None:
                names[name] = found
                free.remove(found)

    def is_as_registered(name: str, other: str) -> bool:
        form = _form(given[name])
        if other not in registered or form != _comparable(drawn[other]):
            return other in registered
        return form == _comparable(registered[other]) and name in turned()

    as_registered = frozenset(other for name, other in names.items() if is_as_registered(name, other))
    return WeightMatch(names, tuple(name for name in wanted if name not in names), as_registered)


def _fits(name: str, tensor: torch.Tensor, other: str, form: Form, with_name: bool) -> bool:
    same_name = name.rpartition(".")[2] == other.rpartition(".")[2]
    return _form(tensor) == _comparable(form) and (same_name or not with_name)


def _form(tensor: torch.Tensor) -> Form:
    return _comparable((NAMES.get(tensor.dtype, "?"), tuple(tensor.shape)))


def _comparable(form: Form) -> Form:
    dtype, shape = form
    return ("float" if dtype in DTYPES and DTYPES[dtype].is_floating_point else dtype), tuple(shape)


def given_weights(weights: Mapping[str, torch.Tensor], match: WeightMatch, held: StateAnswer) -> GivenWeights:
    """Return the reference's values by the names of what the candidate has."""
    forms = {**held.plain, **held.state, **{name: held.registered[name] for name in match.as_registered}}
    own = {other: weights[name] for name, other in match.names.items()}
    return GivenWeights(own, match.as_registered, {other: DTYPES[forms[other][0]] for other in own})


def is_constant(value: torch.Tensor) -> bool:
    """True if a tensor has several elements, all equal."""
    return value.numel() > 1 and bool((value == value.reshape(-1)[0]).all())


def vary_parameters(parameters: Iterable[torch.Tensor], generator: torch.Generator) -> None:
    """Add noise to constant floating-point parameters, in place."""
    floating = [value for value in parameters if value.dtype.is_floating_point and value.dtype.itemsize > 1]
    add_noise([value for value in floating if value.numel() == 1 or is_constant(value)], generator)


def structured_parameters(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the trained floating-point parameters that no generator drew, and that are not constant.

    They repeat values (an identity, a forget gate's bias), run evenly upwards (a table of positions or decays), or
    equal another one (copied layers). A kernel that counts on it is wrong after one step of training.
    """
    found: list[torch.Tensor] = []
    seen: list[torch.Tensor] = []
    for value in parameters:
        if is_trained(value) and value.numel() > 1 and not is_constant(value):
            some = _some(value)
            is_copy = any(torch.equal(some, _some(other)) for other in seen if other.shape == value.shape)
            if is_copy or some.unique().numel() <= some.numel() // 2 or _runs_upwards(value):
                found.append(value)
            seen.append(value)
    return found


def is_trained(value: torch.Tensor) -> bool:
    """Return whether a step of training changes a parameter: none changes one of eight bits."""
    return value.requires_grad and value.dtype.is_floating_point and value.dtype.itemsize > 1


def _some(value: torch.Tensor) -> torch.Tensor:
    """Return the first elements: to sort all of a large weight takes seconds."""
    return value.detach().reshape(-1)[:_LOOKED_AT]


def _runs_upwards(value: torch.Tensor) -> bool:
    last = value.shape[-1]
    steps = value.detach().reshape(-1, last)[: max(1, _LOOKED_AT // last)].diff(dim=-1)
    return last >= _LEAST_RUN and bool((steps > 0).all() or (steps < 0).all())


def add_noise(values: Iterable[torch.Tensor], generator: torch.Generator) -> None:
    """Add noise to tensors, in place."""
    for value in values:
        value.add_(_PARAMETER_NOISE * torch.randn(value.shape, generator=generator).to(value.dtype))


def constant_buffers(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the constant floating-point and boolean buffers with several elements, e.g. running statistics.

    Integer buffers (counters, indices) and buffers with a structure (a triangle, a table) are not among them: a kernel
    may rely on their values.
    """
    return [
        value
        for value in model.buffers()
        if (value.dtype.is_floating_point or value.dtype is torch.bool) and is_constant(value)
    ]


def vary_constants(values: Sequence[torch.Tensor], generator: torch.Generator) -> None:
    """Vary constant tensors in place, within their sign: positive ones (variances) stay positive, masks are flipped."""
    for value in values:
        value.copy_(varied(value, generator))


def varied(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return other values near those of a constant floating-point or boolean tensor."""
    draw = torch.rand(value.shape, generator=generator)
    if value.dtype is torch.bool:
        return value ^ (draw < _FLIPPED)
    constant = value.reshape(-1)[0].item()
    if constant == 0:
        return (2 * _PARAMETER_NOISE * (draw - 0.5)).to(value.dtype)
    return (constant * (0.5 + draw)).to(value.dtype)


def trained(model: torch.nn.Module, generator: torch.Generator) -> torch.nn.Module:
    """Return a copy of a model whose trainable floating-point parameters have other values, each of the same sign."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for value in other.parameters():
            if is_trained(value):
                factor = torch.rand(value.shape, generator=generator, device=generator.device)
                value.mul_(0.5 + factor.to(value.device, value.dtype))
    return other


def with_other_values(model: torch.nn.Module, names: Sequence[str], generator: torch.Generator) -> None:
    """Replace the named floating-point parameters and buffers of a model by clearly different values, in place."""
    state = registered_state(model)
    with torch.no_grad():
        for name in names:
            value = state[name]
            if value.dtype.is_floating_point:
                value.mul_(1 + torch.rand(value.shape, generator=generator).to(value.device, value.dtype)).add_(0.25)


def in_float64(model: torch.nn.Module) -> torch.nn.Module:
    """Convert a model's floating-point parameters, buffers and plain tensors to float64, in place; returns it."""
    model.double()
    converted: dict[int, torch.Tensor] = {}
    for found in list(plain_attributes(model)):
        if found.value.dtype.is_floating_point:
            setattr(found.holder, found.attribute, converted.setdefault(id(found.value), found.value.double()))
    return model
