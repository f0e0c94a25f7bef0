"""Triton's own interpreter with guards: a second, independent reading of what a kernel does wrong.

`install()` patches the interpreter of this process (TRITON_INTERPRET=1). Programs of a launch run in a random order,
lanes that are masked off without `other` hold garbage, an autotuned kernel runs in a random configuration, and
GuardError is raised for

- an access outside of the storages of the launch's tensors,
- a race: programs of one launch that access an element without an order, one of them to change it. Launches with
  atomics on a single address are exempt: these may be locks, of which this module knows nothing,
- one store that gives an element two values.

It shares no code with kernels_eval/interpreter, which mutant_truth.py is to check.
"""

import math
import types as python_types
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as upstream
from triton.runtime.autotuner import Autotuner
from triton.tools.tensor_descriptor import TensorDescriptor

GARBAGE = 0.8
"""Share of the lanes without `other` that hold garbage; the others hold zero, as registers often do."""


class GuardError(Exception):
    """Raised where a kernel does what is not defined."""


@dataclass
class Storage:
    """One storage of a launch, and the programs (number + 1; 0: none) that accessed each of its bytes."""

    start: int
    size: int
    written: np.ndarray[Any, Any] = field(init=False)
    read: np.ndarray[Any, Any] = field(init=False)
    updated: np.ndarray[Any, Any] = field(init=False)
    """By an atomic."""

    def __post_init__(self) -> None:
        self.written, self.read, self.updated = (np.zeros(self.size, np.int32) for _ in range(3))


@dataclass
class Guard:
    """The current launch."""

    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    storages: list[Storage] = field(default_factory=list)
    launches: int = 0
    program: int = 0
    is_ordered: bool = False
    """True after an atomic on a single address."""

    def seed(self, seed: int) -> None:
        """Draw orders, garbage and configurations anew from a seed."""
        self.random = np.random.default_rng(seed)

    def begin(self, arguments: list[Any]) -> None:
        """Begin a launch."""
        self.launches += 1
        found = {storage.data_ptr(): storage.nbytes() for storage in _storages(arguments)}
        self.storages = [Storage(start, size) for start, size in found.items()]
        self.is_ordered = False

    def access(self, pointers: Any, mask: Any, does: str, values: Any = None) -> None:
        """Check one access and remember it. `does`: `reads`, `writes` or `updates`."""
        shape = pointers.data.shape
        lanes = np.broadcast_to(np.asarray(mask, dtype=bool), shape)
        addresses = pointers.data[lanes].astype(np.int64)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        stored = None if values is None else np.broadcast_to(values, shape)[lanes]
        left = np.ones(addresses.shape, dtype=bool)
        for storage in self.storages:
            inside = (addresses >= storage.start) & (addresses + size <= storage.start + storage.size)
            if inside.any():
                left &= ~inside
                chosen = None if stored is None else stored[inside]
                self._within(storage, addresses[inside] - storage.start, does, chosen)
        if left.any():
            raise GuardError(f"out of bounds: {does} {int(left.sum())} elements outside of its tensors")

    def _within(self, storage: Storage, places: Any, does: str, values: Any) -> None:
        mine = self.program + 1
        if does == "reads":
            self._conflict(storage.written, places, "reads what another program wrote")
            self._conflict(storage.updated, places, "reads what another program updated")
            first = storage.read[places] == 0
            storage.read[places[first]] = mine
            return
        if does == "updates":
            self._conflict(storage.written, places, "updates what another program wrote")
            self._conflict(storage.read, places, "updates what another program read")
            storage.updated[places] = mine
            return
        _check_single(places, values)
        changed = places[_differs(storage.start, places, values)]
        self._conflict(storage.written, changed, "writes what another program wrote")
        self._conflict(storage.read, changed, "writes what another program read")
        self._conflict(storage.updated, places, "writes what another program updated")
        storage.written[places] = mine

    def _conflict(self, programs: Any, places: Any, what: str) -> None:
        found = programs[places]
        if not self.is_ordered and bool(((found != 0) & (found != self.program + 1)).any()):
            raise GuardError(f"data race: {what}")


GUARD = Guard()
_TYPES: dict[str, Any] = {}
_upstream_type = upstream._get_np_dtype


def install() -> None:
    """Patch Triton's interpreter in this process."""
    builder = upstream.InterpreterBuilder
    builder.create_masked_load = _load
    builder.create_masked_store = _store
    rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas

    def atomic_rmw(self: Any, operation: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        _update(ptr, mask.data)
        return rmw(self, operation, ptr, val, mask, *rest)

    def atomic_cas(self: Any, ptr: Any, *rest: Any) -> Any:
        _update(ptr, True)
        return cas(self, ptr, *rest)

    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas
    upstream._patch_lang(python_types.FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core}))
    upstream._patch_lang = lambda _: None  # upstream patches the language anew in every launch: half of its time
    upstream._get_np_dtype = _numpy_type
    upstream.GridExecutor.__call__ = _run
    Autotuner.run = _run_autotuned
    # Its own check of 64-bit overflow is not what compiled code does.
    upstream.interpreter_builder.options = upstream.dataclasses.replace(
        upstream.interpreter_builder.options, sanitize_overflow=False
    )


def _numpy_type(dtype: Any) -> Any:
    """Return NumPy's type of a type; upstream makes a table of all types in each call."""
    scalar = dtype.scalar
    name = "pointer" if scalar.is_ptr() else scalar.name
    if name not in _TYPES:
        _TYPES[name] = _upstream_type(dtype)
    return _TYPES[name]


def _load(self: Any, ptrs: Any, mask: Any, other: Any, *_: Any, **__: Any) -> Any:
    lanes = np.broadcast_to(np.asarray(getattr(mask, "data", mask), dtype=bool), ptrs.data.shape)
    GUARD.access(ptrs, lanes, "reads")
    dtype = ptrs.get_element_ty()
    kind = upstream._get_np_dtype(dtype)
    content = _garbage(ptrs.data.shape, kind) if other is None else other.data
    return upstream.TensorHandle(upstream._interpreter.load(ptrs.data, lanes, content, kind), dtype)


def _store(self: Any, ptrs: Any, value: Any, mask: Any, *_: Any, **__: Any) -> Any:
    lanes = np.broadcast_to(np.asarray(getattr(mask, "data", mask), dtype=bool), ptrs.data.shape)
    kind = upstream._get_np_dtype(ptrs.get_element_ty())
    GUARD.access(ptrs, lanes, "writes", value.data.astype(kind, copy=False))
    return upstream._interpreter.store(ptrs.data, value.data, lanes)


def _update(ptrs: Any, mask: Any) -> None:
    if ptrs.data.size == 1:
        GUARD.is_ordered = True
    GUARD.access(ptrs, mask, "updates")


def _garbage(shape: tuple[int, ...], kind: np.dtype[Any]) -> Any:
    size = math.prod(shape)
    if kind.kind == "f":
        values = GUARD.random.standard_normal(size) * 10.0 ** GUARD.random.integers(-3, 5, size)
    elif kind.kind == "b":
        values = GUARD.random.integers(0, 2, size)
    else:
        values = GUARD.random.integers(0, np.iinfo(kind).max, size, dtype=kind)
    values = np.where(GUARD.random.random(size) < GARBAGE, values, 0)
    return values.astype(kind).reshape(shape)


def _differs(start: int, places: Any, values: Any) -> Any:
    """Return for each place if the store changes its bits."""
    plain = np.ascontiguousarray(values)
    zeros = np.zeros(plain.shape, plain.dtype)
    everywhere = np.ones(plain.shape, dtype=bool)
    before = upstream._interpreter.load((places + start).astype(np.uint64), everywhere, zeros, plain.dtype)
    size = plain.dtype.itemsize
    bytes_of = [np.ascontiguousarray(part).view(np.uint8).reshape(-1, size) for part in (before, plain)]
    return (bytes_of[0] != bytes_of[1]).any(axis=1)


def _check_single(places: Any, values: Any) -> None:
    """Raise GuardError if a place occurs twice with different values."""
    if np.unique(places).size == places.size:
        return
    order = np.argsort(places, kind="stable")
    plain = np.ascontiguousarray(values)[order]
    bits = plain.view(np.uint8).reshape(plain.size, -1)
    again = places[order][1:] == places[order][:-1]
    if bool((again & (bits[1:] != bits[:-1]).any(axis=1)).any()):
        raise GuardError("data race: one store gives an element two values")


def _run(self: Any, *given: Any, **named: Any) -> None:
    """Run a launch as upstream does (GridExecutor.__call__), its programs in a random order."""
    names = upstream.inspect.getfullargspec(self.fn).args
    named = {name: value for name, value in named.items() if name in names}
    given_here, named_here = self._init_args_hst(given, named)
    for hook in self.pre_run_hooks:
        hook(*given_here, **named_here)
    GUARD.begin([*given_here, *named_here.values()])
    arguments = {
        name: value if name in self.constexprs else upstream._implicit_cvt(value)
        for name, value in upstream.inspect.getcallargs(self.fn, *given_here, **named_here).items()
    }
    grid = self.grid(arguments) if callable(self.grid) else self.grid
    grid = (*grid, 1, 1)[:3]
    upstream.interpreter_builder.set_grid_dim(*grid)
    for number in GUARD.random.permutation(math.prod(grid)):
        GUARD.program = int(number)
        rest, z = divmod(int(number), grid[2])
        upstream.interpreter_builder.set_grid_idx(*divmod(rest, grid[1]), z)
        self.fn(**arguments)
    self._restore_args_dev(given, given_here, named, named_here)


def _run_autotuned(self: Any, *given: Any, **named: Any) -> Any:
    """Run an autotuned kernel in one of its configurations."""
    config = self.configs[int(GUARD.random.integers(len(self.configs)))]
    arguments = {**named, **config.all_kwargs()}
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(self.arg_names, given, strict=False)), **arguments})
    return self.fn.run(*given, **arguments)


def _storages(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, tuple | list):
            found += _storages(list(value))
        elif isinstance(value, TensorDescriptor):
            found += _storages([value.base])
        elif hasattr(value, "data_ptr"):
            found.append(upstream._unwrap_tensor(value).untyped_storage())
    return found
