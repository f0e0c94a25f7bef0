"""Interpreter process: runs a candidate's kernels on the tensors that this process owns."""

import contextlib
import math
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels_eval.cost.launch import SECTOR_BYTES, Launch
from kernels_eval.interpreter.contention import most_contended
from kernels_eval.interpreter.copy_detection import LibraryCopies, MovedValues
from kernels_eval.interpreter.data_races import RACES, DataRaceError
from kernels_eval.interpreter.kept_content import KeptContent
from kernels_eval.interpreter.kernel_loading import KernelLibrary, interpreted, tuple_of
from kernels_eval.interpreter.load_turns import LOAD_TURNS
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Flags, Origin, Region
from kernels_eval.interpreter.operation_log import OPERATION_LOG
from kernels_eval.interpreter.own_stores import OWN_STORES
from kernels_eval.interpreter.rereads import REREADS
from kernels_eval.interpreter.tensor_store import ProgramError, TensorStore
from kernels_eval.interpreter.triton_patches.batches import interpret_in_batches
from kernels_eval.interpreter.triton_patches.dependent_launches import DEPENDENCE
from kernels_eval.interpreter.triton_patches.descriptors import WORKSPACE
from kernels_eval.interpreter.triton_patches.interpreter import DeviceFunction, KernelError, pointer
from kernels_eval.interpreter.triton_patches.made_pointers import MADE_POINTERS
from kernels_eval.interpreter.triton_patches.names import runtime_value
from kernels_eval.interpreter.triton_patches.programs import Queue, StuckError, interpret, uneven_queue
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.trace.kernel_syntax import ForbiddenSyntaxError
from kernels_eval.trace.launch_signature import TRITON_NAMES, describe_launch
from kernels_eval.trace.schema import Descriptor, KernelSource, LaunchKernel, Sequence, Value, View

_SAMPLED_PROGRAMS = 32
_STAGES = 3
"""Triton's own `num_stages`."""
_MOST_SHUFFLED = 1 << 20
"""Most programs of a launch whose order is drawn as a whole."""
_DEPTH = 100
"""Calls of Python's within one another that a program needs which runs within another one."""


_WAITING = ("while", "atomic_")


_Lives = dict[Literal["busy_share", "most_accesses", "most_reductions", "most_turns"], float]
"""Work of the programs with the most, as `Launch` has it."""


class KernelRuns:
    """The kernels of one candidate."""

    def __init__(self, memory: TensorStore, order: int = 0) -> None:
        """Create it for one candidate. `order`: seed of the order in which programs run."""
        self._memory = memory
        self._order = np.random.default_rng(order)
        self._library = KernelLibrary(interpreted, for_interpreter=True)
        self._is_copy = False
        """True if the last launch only passed on its arguments."""
        self._computing: set[str] = set()
        """Kernels, with the constants that they were launched with, that are known to compute."""
        self._one_by_one: set[str] = set()
        """Those whose programs cannot be interpreted together."""
        self._shared: dict[tuple[Any, ...], _Lives] = {}
        """Lives of programs that shared a queue, by what was counted while they did not."""
        self._waits: set[str] = set()
        """Those of the words by which programs wait for others that kernels have, one helper this and one that."""
        self._touched: dict[int, Flags] = {}
        """Sectors that launches of this call have read or written, by the storage's number."""
        self._launched = 0
        """Launches of this call, one by one, so far."""
        self._unpaired: dict[tuple[int, str], int] = {}
        """Seeds of the orders whose reverse has not been run yet, by number in the call and name of the launch."""

    def begin_call(self) -> None:
        """Forget what earlier calls touched."""
        self._touched.clear()
        self._launched = 0

    def load(self, kernels: Iterable[KernelSource]) -> None:
        """Load kernels. Raises KernelError if one uses syntax that is not allowed."""
        for kernel in kernels:
            try:
                self._library.load([kernel])
                self._waits |= {word for word in _WAITING if word in kernel.source}
            except (ForbiddenSyntaxError, KeyError, ValueError, AttributeError) as error:
                raise KernelError(kernel.name) from error

    def run(self, launch: LaunchKernel) -> Launch:
        """Run one launch and count it. Raises KernelError if it fails."""
        function = self._function(launch)
        missing = set(function.names) ^ launch.arguments.keys()
        if missing:
            raise ProgramError(f"a launch of {function.fn.__name__} and its parameters differ in {sorted(missing)[0]}")
        try:
            described = describe_launch(launch, function.fn.__name__, function.constexprs)
        except TypeError as error:
            raise KernelError(function.fn.__name__) from error
        self._start(launch)
        WORKSPACE.has_allocator = True
        views = _distinct(launch)
        for view in views:
            self._memory[view.storage].dtype = DTYPES[view.dtype]
        copies = None if self._memory.strict else LibraryCopies(self._memory, views)
        constants = _constants(launch)
        moved = None if constants in self._computing else MovedValues(self._memory, views)
        try:
            arguments = {
                name: self._library.value_of(value) if name in function.constexprs else self._argument(value)
                for name, value in launch.arguments.items()
            }
            lives = self._interpret(function, arguments, launch, constants)
            self._require_wait()
        except Exception as error:
            raise KernelError(function.fn.__name__) from error
        contention, same_address = most_contended()
        reread = REREADS.found()
        counted = Launch(
            dram_bytes=ACCESS_LOG.sectors * SECTOR_BYTES,
            l2_bytes=ACCESS_LOG.l2_bytes,
            lone_share=min(1.0, ACCESS_LOG.lone_sectors * SECTOR_BYTES / max(ACCESS_LOG.l2_bytes, 1)),
            operations=dict(OPERATION_LOG.counts),
            blocks=OPERATION_LOG.blocks,
            **lives,
            contention=contention,
            same_address=same_address,
            largest_index=OPERATION_LOG.largest_index,
            written_bytes=ACCESS_LOG.written_sectors * SECTOR_BYTES,
            again_bytes=ACCESS_LOG.sectors_read_in(self._touched) * SECTOR_BYTES,
            reread_bytes=reread.nbytes,
            reread_reach=reread.reach,
            given_bytes=ACCESS_LOG.given_sectors * SECTOR_BYTES,
            asked_bytes=ACCESS_LOG.asked_bytes,
            lane_bytes=ACCESS_LOG.lane_bytes / max(math.prod(launch.grid), 1),
            **described,
        )
        ACCESS_LOG.add_touched(self._touched)
        if copies is not None:
            copies.settle()
        self._is_copy = copies is not None and copies.found
        if moved is not None and not self._is_copy:
            self._is_copy = moved.settle(lambda: interpret(function, arguments, launch.grid, _some_of(launch.grid)))
            if moved.asked and not self._is_copy:
                self._computing.add(constants)
        return counted.model_copy(update={"is_copy": self._is_copy})

    def _interpret(
        self, function: DeviceFunction, arguments: dict[str, Any], launch: LaunchKernel, name: str
    ) -> _Lives:
        """Run all programs of a launch: in batches, if none depends on another one, else in a secret order.

        Where they take tiles from a queue, they are run once more, to share them: once for each set of counts.
        """
        WORKSPACE.has_allocator = launch.has_allocator  # descriptors among its arguments are made by now
        if name not in self._one_by_one and math.prod(launch.grid) > 1:
            if interpret_in_batches(function, arguments, launch.grid, lambda: self._start(launch)):
                return _lives()
            self._one_by_one.add(name)
            self._start(launch)
        kept = self._kept_content(launch) if len(self._waits) == len(_WAITING) else None
        order = list(self._in_secret_order(launch.grid, name))
        try:
            interpret(function, arguments, launch.grid, order, kept is None)
        except StuckError:
            assert kept is not None
            kept.put_back()
            self._start(launch)
            interpret(function, arguments, launch.grid, _in_grid_order(launch.grid))
            return _lives()
        queue = uneven_queue(len(order))
        if kept is None or queue is None:
            return _lives()
        counts = (name, launch.grid, queue.share, *_lives().values(), *OPERATION_LOG.counts.values())
        if counts not in self._shared:
            self._share(queue, function, arguments, launch, kept, order)
            self._shared[counts] = _lives()
        return self._shared[counts]

    def _share(
        self,
        queue: Queue,
        function: DeviceFunction,
        arguments: dict[str, Any],
        launch: LaunchKernel,
        kept: KeptContent,
        order: list[tuple[int, int, int]],
    ) -> None:
        """Run a launch again in which a program took more than its share of a queue; as before if that is stuck."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + _DEPTH * len(order))
        try:
            kept.put_back()
            self._start(launch)
            interpret(function, arguments, launch.grid, order, False, queue)
        except StuckError:
            kept.put_back()
            self._start(launch)
            interpret(function, arguments, launch.grid, order)
        finally:
            sys.setrecursionlimit(limit)

    def _kept_content(self, launch: LaunchKernel) -> KeptContent:
        numbers = {view.storage for view in _distinct(launch)}
        return KeptContent(self._memory[number] for number in numbers)

    def _start(self, launch: LaunchKernel) -> None:
        ACCESS_LOG.start(self._regions(launch))
        MADE_POINTERS.start({reached.place: self._memory[reached.view.storage].base for reached in launch.reached})
        OPERATION_LOG.start(launch.options.get("num_warps", 4))
        REREADS.start()
        LOAD_TURNS.start(launch.options.get("num_stages", _STAGES), OPERATION_LOG.threads)
        OWN_STORES.start(launch.options.get("num_stages", _STAGES))
        RACES.has_warps = launch.options.get("num_warps", 4) > 1
        DEPENDENCE.has_waited = not launch.options.get("launch_pdl")

    def _require_wait(self) -> None:
        """Raise DataRaceError if a launch that may overlap with those before it touched what they did."""
        if DEPENDENCE.has_waited:
            return
        for region in ACCESS_LOG.regions:
            is_used = region.read is not None or region.written is not None
            if is_used and region.storage.number in self._touched and region.storage.origins is not None:
                raise DataRaceError(
                    f"launched with launch_pdl, the kernel touches `{region.name}` without tl.extra.cuda.gdc_wait(): "
                    "an earlier launch of the call, which touches it too, may still run"
                )

    def run_scrambled(self, launch: LaunchKernel) -> None:
        """Run a launch and replace its results: floats by noise, other values by one another's.

        One may fail on values of an earlier one that were replaced: offsets. Then what it did not write is missing.
        """
        self._is_copy = False
        with contextlib.suppress(KernelError):
            self.run(launch)
        if self._is_copy:
            return
        seen: set[int] = set()
        for _, view in _views(launch):
            region = next(region for region in ACCESS_LOG.regions if region.storage.number == view.storage)
            if region.written is None or view.storage in seen:
                continue
            seen.add(view.storage)
            dtype = DTYPES[view.dtype]
            origins = region.storage.all_origins()
            starts = np.flatnonzero(origins == Origin.KERNEL)
            places = torch.from_numpy(starts[region.written[starts // SECTOR_BYTES]] // dtype.itemsize)
            whole = region.storage.memory[: origins.size // dtype.itemsize * dtype.itemsize].view(dtype)
            written = whole[places]
            is_float = dtype.is_floating_point or dtype.is_complex
            whole[places] = torch.rand(written.shape).to(dtype) * 4 - 2 if is_float else written.roll(1)

    def _in_secret_order(self, grid: tuple[int, int, int], name: str) -> Iterator[tuple[int, int, int]]:
        """Yield every program of a grid once, in an order that the candidate cannot know.

        The same launch of the next call gets the reverse: of any two programs each has run before the other then.
        """
        self._launched += 1
        key = (self._launched, name)
        seed = self._unpaired.pop(key, None)
        is_reversed = seed is not None
        if seed is None:
            seed = self._unpaired[key] = int(self._order.integers(1 << 63))
        for number in _permutation(math.prod(grid), seed, is_reversed):
            rest, x = divmod(int(number), grid[0])
            z, y = divmod(rest, grid[1])
            yield x, y, z

    def _function(self, launch: LaunchKernel) -> DeviceFunction:
        try:
            function = self._library[launch.kernel]
        except KeyError as error:
            raise ProgramError(f"a program launched kernel {launch.kernel} before it was known") from error
        if not isinstance(function, DeviceFunction):
            raise ProgramError("a program launched what is no kernel")
        return function

    def _argument(self, value: Value) -> Any:
        if isinstance(value, View):
            return pointer(self._address(value), TRITON_NAMES[value.dtype])
        if isinstance(value, Sequence):
            return tuple_of([self._argument(item) for item in value.items], value.fields)
        if isinstance(value, Descriptor):
            host = TensorDescriptor(
                self._memory.tensor(value.base),
                list(value.shape),
                list(value.strides),
                list(value.block_shape),
                value.padding,
            )
            return runtime_value(host)
        return runtime_value(self._library.value_of(value))

    def _address(self, view: View) -> int:
        return self._memory.tensor(view).data_ptr()

    def _regions(self, launch: LaunchKernel) -> list[Region]:
        regions: dict[int, Region] = {}
        for name, view in _views(launch):
            if view.storage not in regions:
                storage = self._memory[view.storage]
                start = view.offset * DTYPES[view.dtype].itemsize
                regions[view.storage] = Region(name, storage, storage.base, storage.memory.numel(), start)
        return list(regions.values())


def _permutation(count: int, seed: int, is_reversed: bool) -> Iterable[int]:
    """Return the numbers below `count` in a random order; of very many by their multiples, one after the other."""
    drawn = np.random.default_rng(seed)
    places = range(count)[:: -1 if is_reversed else 1]
    if count <= _MOST_SHUFFLED:
        return drawn.permutation(count)[places]
    step = int(drawn.integers(count))
    while math.gcd(step, count) != 1:
        step += 1
    return (step * place % count for place in places)


def _views(launch: LaunchKernel) -> Iterator[tuple[str, View]]:
    """Yield the tensors that a launch can touch, with the names of their arguments."""
    yield from _views_among(launch.arguments)
    for reached in launch.reached:
        yield "data_ptr()", reached.view


def _views_among(arguments: dict[str, Value]) -> Iterator[tuple[str, View]]:
    for name, value in arguments.items():
        if isinstance(value, View):
            yield name, value
        elif isinstance(value, Descriptor):
            yield name, value.base
        elif isinstance(value, Sequence):
            yield from _views_among({f"{name}[{index}]": item for index, item in enumerate(value.items)})


def _distinct(launch: LaunchKernel) -> list[View]:
    return list(dict.fromkeys(view for _, view in _views(launch)))


def _constants(launch: LaunchKernel) -> str:
    """Name a kernel with all arguments of its launch except tensors."""
    plain = {name: value.model_dump_json() for name, value in launch.arguments.items() if not isinstance(value, View)}
    return f"{launch.kernel} {plain}"


def _in_grid_order(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield every program in the order in which a GPU starts them."""
    return ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))


def _some_of(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    return islice(_programs(grid), 0, None, max(1, math.prod(grid) // _SAMPLED_PROGRAMS))


def _programs(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    return ((x, y, z) for x in range(grid[0]) for y in range(grid[1]) for z in range(grid[2]))


def _lives() -> _Lives:
    """Return what was counted of the launch that was run last."""
    return {
        "busy_share": OPERATION_LOG.busy_share,
        "most_accesses": OPERATION_LOG.most_accesses,
        "most_reductions": OPERATION_LOG.most_reductions,
        "most_turns": LOAD_TURNS.most,
    }
