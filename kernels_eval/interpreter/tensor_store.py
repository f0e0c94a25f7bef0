"""Interpreter process: tensors of one candidate: storages by number, their provenance, PyTorch's operators on them."""

from typing import Any

import numpy as np
import torch

from kernels_eval.correctness.allowed_operators import COPIES, CREATIONS, MOVES, UNINITIALISED, is_recordable
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.operators import count_operator
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.interpreter.memory_accesses import Origin, Storage
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT, Operate, Plain, Sequence, TypeName, Upload, View

COUNTED = (
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64,
)  # fmt: skip
"""Types in which kernels and host code may count, and in which PyTorch calculates."""
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Types in which PyTorch does not calculate, and those whose bits count alike."""
_FRESH_PERIOD = 4092
"""Elements of fresh memory that are drawn."""
_PATTERN = 0x55
"""Content of fresh memory of a type without NaN, by turns with its complement."""
LEAST_GAP, _MOST_GAP = 96 << 10, 1 << 20
"""Bytes after the memory of a storage, never touched. With less than 128 KiB in all the C library needs no system call
for it, which a verdict's CPU time shows (6 %)."""
_MANY = 64
"""Storages beyond which the gap is the least: it takes address space, which is limited."""
_MOST_COPIED = 1 << 24
"""Bytes of an operator's result up to which it is copied to memory with gaps."""
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types by bytes of an element: constants are compared bit by bit."""
_LEAST_OF_KERNELS = 0.05
"""Share of an output's elements from which on kernels stored more than a trace of it."""


def as_counted(numbers: torch.Tensor) -> torch.Tensor | None:
    """Return numbers in a type in which one may count, sharing memory; None if they are of no such type."""
    numbers = numbers.view(_SIGNED.get(numbers.dtype, numbers.dtype))
    return numbers if numbers.dtype in COUNTED else None


class ProgramError(Exception):
    """Raised for a program that the tracer never writes."""

    def __init__(self, message: str, category: str = ErrorCategory.MALFORMED_ANSWER) -> None:
        super().__init__(message)
        self.category = category


class TensorStore:
    """Storages by number."""

    def __init__(self, strict: bool, order: int = 0) -> None:
        """`order`: the seed of what fresh memory holds."""
        self.strict = strict
        self._storages: dict[int, Storage] = {}
        self._largest = 0
        """Bytes of the largest storage so far."""
        self._fresh = torch.Generator().manual_seed(order)

    def __getitem__(self, number: int) -> Storage:
        """Return a storage; raises ProgramError if the number is unknown."""
        storage = self._storages.get(number)
        if storage is None:
            raise ProgramError(f"a program used storage {number} before it was made")
        return storage

    @property
    def numbers(self) -> set[int]:
        """Numbers of the storages that are in use."""
        return set(self._storages)

    @property
    def wrote_weights(self) -> bool:
        """True if a kernel or an operator has written into a weight."""
        given = (self._storages[number] for number in self._storages if FIRST_WEIGHT <= number < FIRST_OWN)
        return any(storage.origins is not None for storage in given)

    def kept_values(self, most_bytes: int) -> dict[int, torch.Tensor]:
        """Return, by number, the numbers in each storage but the inputs that a kernel has written, if it is not larger.

        The tensors share the storages' memory.
        """
        found = {
            number: as_counted(
                storage.memory[: storage.memory.numel() // storage.dtype.itemsize * storage.dtype.itemsize].view(
                    storage.dtype
                )
            )
            for number, storage in self._storages.items()
            if number >= FIRST_WEIGHT
            and storage.origins is not None
            and storage.dtype is not None
            and storage.memory.numel() <= most_bytes
        }
        return {number: values for number, values in found.items() if values is not None}

    def give(self, number: int, tensor: torch.Tensor, nbytes: int) -> None:
        """Use memory that the judge filled as a storage (no copy)."""
        self._largest = max(self._largest, nbytes)
        flat = torch.empty(0, dtype=torch.uint8)
        if nbytes:
            start = int(tensor.storage_offset()) * tensor.element_size()
            flat.set_(tensor.untyped_storage(), start, (nbytes,), (1,))
        self._storages[number] = Storage(number, flat, Origin.GIVEN)

    def set_values(self, number: int, tensor: torch.Tensor) -> None:
        """Set the content of a storage that is as large as a tensor, in place."""
        memory = self[number].memory
        if memory.numel():
            memory.copy_(tensor.contiguous().reshape(-1).view(torch.uint8))

    def upload(self, command: Upload, payload: bytearray) -> None:
        """Make a storage from bytes that the host code sent."""
        content = payload[command.start : command.start + command.size]
        if len(content) != command.size:
            raise ProgramError("a program uploads more than it sent")
        memory = self._memory_apart(len(content))
        if content:
            memory.copy_(torch.frombuffer(content, dtype=torch.uint8))
        self._storages[command.storage] = Storage(command.storage, memory, Origin.GIVEN)

    def free(self, numbers: tuple[int, ...]) -> None:
        """Free storages."""
        for number in numbers:
            self._storages.pop(number, None)

    def tensor(self, view: View) -> torch.Tensor:
        """Return a view as a tensor; raises ProgramError if it extends beyond its storage."""
        storage = self[view.storage]
        dtype = DTYPES[view.dtype]
        if view.reach * dtype.itemsize > storage.memory.numel():
            raise ProgramError("a view reaches beyond its storage", ErrorCategory.OUT_OF_BOUNDS)
        tensor = torch.empty(0, dtype=dtype)
        offset = int(storage.memory.storage_offset())
        assert offset % dtype.itemsize == 0
        start = offset // dtype.itemsize + view.offset
        return tensor.set_(storage.memory.untyped_storage(), start, view.shape, view.strides)

    def origins(self, view: View) -> torch.Tensor:
        """Return the last writer of each element of a view (Origin), as a tensor that shares the origins' memory."""
        itemsize = DTYPES[view.dtype].itemsize
        origins = torch.from_numpy(self[view.storage].all_origins())
        strides = tuple(stride * itemsize for stride in view.strides)
        return origins.as_strided(view.shape, strides, view.offset * itemsize)

    def origin_counts(self, view: View) -> list[int]:
        """Count a view's elements by their last writer."""
        counts = [0] * len(Origin)
        storage = self[view.storage]
        if storage.origins is None:
            counts[storage.default_origin] = view.numel
            return counts
        found = np.bincount(self.origins(view).numpy().ravel(), minlength=len(Origin))
        return [int(count) for count in found]

    def origins_of_output(self, view: View) -> list[int]:
        """Count an output's elements by their last writer. Constants but for the commonest one count as moved.

        A pattern of constants is PyTorch's work, such as a mask of zeros and ones that copies put together. Beside
        what kernels stored, two constants are none: padding, and a value that is ignored.
        """
        counts = self.origin_counts(view)
        if not counts[Origin.FILL] or self[view.storage].origins is None:
            return counts
        kept = 2 if counts[Origin.KERNEL] >= _LEAST_OF_KERNELS * view.numel else 1
        further = _further_constants(self.tensor(view)[self.origins(view) == Origin.FILL], kept)
        counts[Origin.FILL] -= further
        counts[Origin.MOVED] += further
        return counts

    def operate(self, command: Operate) -> list[Launch]:
        """Run one operator of PyTorch; returns what it moved, nothing for an allocation."""
        if not is_recordable(command.name, self.strict):
            raise ProgramError(f"aten.{command.name}: the kernels have to compute this", ErrorCategory.LIBRARY_COMPUTE)
        if command.name in UNINITIALISED:
            self._allocate(command)
            return []
        packet = getattr(torch.ops.aten, command.name, None)
        function: Any = getattr(packet, command.overload, None)
        if function is None:
            raise ProgramError(f"aten.{command.name}.{command.overload} does not exist")
        arguments = [self._value(value) for value in command.arguments]
        named = {name: self._value(value) for name, value in command.named.items()}
        result = function(*arguments, **named)
        results = list(result) if isinstance(result, tuple | list) else [result]
        for view, tensor in zip(command.results, results, strict=True):
            if view is not None:
                self._keep(command, view, tensor)
        return count_operator(function, tuple(arguments), named, result)

    def _allocate(self, command: Operate) -> None:
        """Make a storage filled with what no correct result can equal, and what no result can be built upon.

        Floats are NaN, very large or very small, as a seed says: minima and maxima pass over NaN, and over one of the
        others.
        """
        view = command.results[0]
        assert view is not None
        dtype = DTYPES[view.dtype]
        memory = self._memory_apart(view.reach * dtype.itemsize)
        if dtype.is_floating_point or dtype.is_complex:
            parts = torch.view_as_real(memory.view(dtype)) if dtype.is_complex else memory.view(dtype)
            half = torch.finfo(parts.dtype).max / 2
            values = torch.tensor([float("nan"), half, -half], dtype=parts.dtype)
            _repeat(parts.reshape(-1), values[self._drawn_kinds(3)])
        elif dtype is not torch.bool:
            numbers = memory.view(_BITS[dtype.itemsize])
            one = torch.full((dtype.itemsize,), _PATTERN, dtype=torch.uint8).view(numbers.dtype)
            flips = -self._drawn_kinds(2).to(numbers.dtype)
            _repeat(numbers, one ^ flips)
        else:  # neither True nor False throughout
            memory[::2] = 1
            memory[1::2] = 0
        self._storages[view.storage] = Storage(view.storage, memory, Origin.NOBODY)

    def _drawn_kinds(self, kinds: int) -> torch.Tensor:
        """Draw numbers of kinds: each stands once among so many in a row, at a place that no kernel knows."""
        return torch.rand(_FRESH_PERIOD // kinds, kinds, generator=self._fresh).argsort(dim=1).flatten()

    def _memory_apart(self, nbytes: int) -> torch.Tensor:
        """Return memory with a gap behind it, for a kernel that takes it for the largest storage so far.

        An access past its end must not fall into another storage: it would be a data race, or no fault at all, instead
        of an access out of bounds, depending on where memory happened to be.
        """
        self._largest = max(self._largest, nbytes)
        gap = LEAST_GAP if len(self._storages) > _MANY else min(max(LEAST_GAP, 2 * self._largest), _MOST_GAP)
        return torch.empty(nbytes + gap, dtype=torch.uint8)[:nbytes]

    def _keep(self, command: Operate, view: View, tensor: torch.Tensor) -> None:
        """Store a result as the storage that the program names, in the layout that the tracing process assumed."""
        known = view.storage in self._storages
        if not known:
            fits = (
                tuple(tensor.stride()) == view.strides
                and tensor.storage_offset() == view.offset
                and tuple(tensor.shape) == view.shape
                and tensor.dtype is DTYPES[view.dtype]
            )
            nbytes = view.reach * DTYPES[view.dtype].itemsize
            is_kept = fits and nbytes > _MOST_COPIED
            memory = torch.empty(0, dtype=torch.uint8)
            if is_kept:
                memory.set_(tensor.untyped_storage())
            else:
                memory = self._memory_apart(nbytes)
            self._storages[view.storage] = Storage(view.storage, memory, Origin.NOBODY)
            if not is_kept:
                self.tensor(view).copy_(tensor)
        self[view.storage].dtype = DTYPES[view.dtype]
        if command.name in COPIES:
            self._copy_origins(command, view)
        elif command.name in MOVES:
            self._move_origins(command, view)
        elif command.name == "arange":  # it computes
            self._mark(view, Origin.LIBRARY, whole=not known)
        elif command.name in CREATIONS or command.name in ("fill_", "zero_"):
            self._mark(view, Origin.FILL, whole=not known)
        elif command.name not in ("detach", "alias", "detach_", "requires_grad_"):
            self._mark(view, Origin.LIBRARY, whole=not known)

    def _mark(self, view: View, writer: Origin, whole: bool) -> None:
        storage = self[view.storage]
        if whole:
            storage.default_origin, storage.origins = writer, None
        else:
            storage.all_origins()
            self.origins(view).fill_(int(writer))

    def _copy_origins(self, command: Operate, view: View) -> None:
        """Give a copy the origins of its source."""
        source = command.arguments[1] if command.name == "copy_" else command.arguments[0]
        assert isinstance(source, View)
        origin = self[source.storage]
        is_changed = source.model_copy(update={"storage": view.storage}) != view
        if origin.origins is None:
            is_moved = is_changed and origin.default_origin is Origin.GIVEN
            self._mark(view, Origin.MOVED if is_moved else origin.default_origin, whole=command.name != "copy_")
            return
        origins = self.origins(source)
        self[view.storage].all_origins()
        self.origins(view).copy_(_moved(origins) if is_changed else origins)

    def _move_origins(self, command: Operate, view: View) -> None:
        """Move the origins as the operator moved the values; padding counts as a constant."""
        packet = getattr(torch.ops.aten, command.name)
        arguments = [self._origins_of(value) for value in command.arguments]
        if command.name == "constant_pad_nd":
            arguments = [*arguments[:2], int(Origin.FILL)]
        self[view.storage].all_origins()
        overload = "default" if "out" in command.named else command.overload
        self.origins(view).copy_(_moved(getattr(packet, overload)(*arguments)))

    def _origins_of(self, value: Any) -> Any:
        if isinstance(value, Sequence):
            return [self._origins_of(item) for item in value.items]
        return self.origins(value) if isinstance(value, View) else self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, View):
            return self.tensor(value)
        if isinstance(value, Plain):
            return value.value
        if isinstance(value, TypeName):
            if value.name not in DTYPES:
                raise ProgramError(f"{value.name} is no type of PyTorch")
            return DTYPES[value.name]
        if isinstance(value, Sequence):
            return [self._value(item) for item in value.items]
        raise ProgramError(f"a {value.kind} cannot be passed to an operator")


def _repeat(numbers: torch.Tensor, given: torch.Tensor) -> None:
    """Fill numbers with those given, again and again."""
    whole = len(numbers) // len(given) * len(given)
    numbers[:whole].view(-1, len(given))[:] = given
    numbers[whole:] = given[: len(numbers) - whole]


def _further_constants(filled: torch.Tensor, kept: int) -> int:
    """Return how many of these elements have another value than the `kept` commonest ones."""
    values = torch.view_as_real(filled) if filled.is_complex() else filled.unsqueeze(-1)
    bits = values.contiguous().view(_BITS[values.element_size()])
    if bool((bits == bits[0]).all()):
        return 0
    counts = torch.unique(bits, dim=0, return_counts=True)[1]
    return len(bits) - int(counts.sort(descending=True).values[:kept].sum())


def _moved(origins: torch.Tensor) -> torch.Tensor:
    """Return the origins of values that PyTorch has converted or rearranged."""
    return torch.where(origins == Origin.GIVEN, int(Origin.MOVED), origins)
