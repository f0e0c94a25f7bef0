"""Tracing process: records the operations of host code on tensors without values (kernels_eval.tracing.traced_tensor).

Allocations, views and copies make new traced tensors. Operators that compute are refused, or recorded for the
interpreter process if they are among the allowed operators.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as _disable_modes  # pyright: ignore
from torch.utils._pytree import tree_leaves, tree_map_only

from kernels_eval.correctness.allowed_operators import (
    MAX_HOST_INTEGERS,
    MAX_HOST_READS,
    ForbiddenOperatorError,
    refusal,
)
from kernels_eval.correctness.composed_operators import parts_of
from kernels_eval.cost.shapes_alone import SHAPES
from kernels_eval.sandbox.tensor_bytes import NAMES, bytes_of
from kernels_eval.trace.schema import FIRST_OWN, MAX_COMMANDS
from kernels_eval.tracing.addresses import Addresses
from kernels_eval.tracing.shapes_by_values import sized_by_values
from kernels_eval.tracing.step_limit import StepLimit
from kernels_eval.tracing.streams import Streams
from kernels_eval.tracing.traced_tensor import DEVICE, Memory, TracedTensor

_META = torch.device("meta")
_MOST_HOST_NUMBERS = 64
"""Elements of a tensor up to which host code may compute with it on the host, as with Python's numbers."""
_HOST_ONLY = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})
"""Arguments that the interpreter process does not need: the recorded strides of the results suffice."""


class Tracer(TorchDispatchMode):
    """Context manager around one forward call that records the operations of host code.

    `strict`: refuse computing operators; `violations` lists them even if the candidate catches the exception.
    `read`: requests one value from the judge.
    """

    def __init__(self, strict: bool, read: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__()
        self.strict = strict
        self.violations: list[str] = []
        self.commands: list[dict[str, Any]] = []
        self.payload: list[memoryview] = []
        self.freed: list[int] = []
        self.calls = 0
        """Number of forward calls so far."""
        self.captured: list[dict[str, Any]] | None = None
        """Commands of the CUDA graph that is being captured, or None. They are not added to `commands`."""
        self.is_in_call = False
        """True from entering `forward` to leaving it."""
        self.step_limit = StepLimit()
        self.streams = Streams()
        self.addresses = Addresses()
        self._read = read
        self._host_reads = {False: 0, True: 0}
        """Values that host code has read in this call: whole numbers, and others."""
        self._next = FIRST_OWN
        self._hosts: dict[int, tuple[Memory, torch.UntypedStorage]] = {}
        """Memory and storage of each CPU tensor in use, by the address of its storage."""
        self._payload_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one operator."""
        return self.operate(func, args, kwargs or {})

    def start(self) -> None:
        """Begin another forward call."""
        self._host_reads = {False: 0, True: 0}
        self.calls += 1

    def input(self, number: int, shape: tuple[int, ...], dtype: torch.dtype) -> TracedTensor:
        """Return a traced tensor for a whole storage that the judge fills."""
        plain = torch.empty(shape, dtype=dtype, device=_META)
        return self._handle(plain, Memory(self, number, plain.untyped_storage()))

    def adopt(self, tensor: torch.Tensor, number: int) -> TracedTensor:
        """Return a traced tensor for a CPU tensor whose values the judge sets."""
        handle = self.input(number, tuple(tensor.shape), tensor.dtype)
        storage = tensor.untyped_storage()
        if tensor.is_contiguous() and storage.nbytes() == tensor.numel() * tensor.element_size():
            self._hosts[storage.data_ptr()] = (handle.kernels_eval_memory, storage)
        return handle

    def promote(self, tensor: torch.Tensor) -> TracedTensor:
        """Return a traced tensor for a CPU tensor, which is uploaded at its first use."""
        if isinstance(tensor, TracedTensor):
            return tensor
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise ForbiddenOperatorError(f"{type(tensor).__name__}: only plain tensors can be used")
        if tensor.is_meta or tensor.layout is not torch.strided or tensor.dtype not in NAMES:
            raise ForbiddenOperatorError(
                f"a {tensor.layout} tensor of {tensor.dtype} on {tensor.device} cannot be used"
            )
        storage = tensor.untyped_storage()
        known = self._hosts.get(storage.data_ptr()) if storage.nbytes() else None
        if known is None:
            with _disable_modes():  # otherwise the tracer would record these
                content = torch.empty(0, dtype=torch.uint8).set_(storage)
                meta = torch.empty(storage.nbytes(), dtype=torch.uint8, device=_META).untyped_storage()
            known = Memory(self, self._number(), meta, content), storage
            self._hosts[storage.data_ptr()] = known
        with _disable_modes():
            plain = torch.empty(0, dtype=tensor.dtype, device=_META)
            plain.set_(known[0].meta, tensor.storage_offset(), tensor.shape, tensor.stride())
        return self._handle(plain, known[0])

    def view_of(self, handle: TracedTensor) -> dict[str, Any]:
        """Describe a traced tensor for a command; uploads the content first if it is a CPU tensor not yet uploaded."""
        memory, plain = handle.kernels_eval_memory, handle.kernels_eval_plain
        if memory.content is not None:
            with _disable_modes():
                content, memory.content = bytes_of(memory.content), None
            self.payload.append(content)
            self.addresses.put_bytes(content, memory.number)
            self.command(
                {"kind": "upload", "storage": memory.number, "start": self._payload_bytes, "size": content.nbytes}
            )
            self._payload_bytes += content.nbytes
        return {
            "kind": "view",
            "storage": memory.number,
            "dtype": NAMES[plain.dtype],
            "shape": list(plain.shape),
            "strides": list(plain.stride()),
            "offset": plain.storage_offset(),
        }

    def command(self, command: dict[str, Any]) -> None:
        """Append one command."""
        self.step_limit.renew()
        if len(self.commands) >= MAX_COMMANDS:
            raise RuntimeError(f"more than {MAX_COMMANDS} operations in one forward call")
        if self.captured is not None and command["kind"] in ("operate", "launch"):
            self.captured.append(command)
            return
        if command["kind"] in ("operate", "launch"):
            taken, made = storages([command.get("arguments"), command.get("named")]), storages(command.get("results"))
            if self.addresses.may_use(command, taken, made):
                taken |= storages(command.get("reached"))
            self.streams.work(taken, made)
        self.commands.append(command)

    def take(self) -> tuple[list[dict[str, Any]], list[memoryview]]:
        """Return the commands recorded since the last call, and the uploads' bytes."""
        if self.freed:
            freed, self.freed = self.freed, []
            self.commands.append({"kind": "free", "storages": freed})
        commands, payload = self.commands, self.payload
        self.commands, self.payload, self._payload_bytes = [], [], 0
        return commands, payload

    def operate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator on shapes alone and record it."""
        self.step_limit.renew()
        name: str = func.overloadpacket.__name__
        if name == "_local_scalar_dense":
            return self._read_value(args[0])
        parts = parts_of(func)
        if parts is not None:
            with self:  # its operations are recorded, and limited to the allowed operators, like direct calls
                return parts(*args, **kwargs)
        reason = refusal(func, name, self.strict)
        if reason is not None:
            numbers = self._host_numbers(args, kwargs)
            if numbers is not None and refusal(func, name, False) is None and not _is_random(func):
                with _disable_modes():
                    result = func(*numbers[0], **numbers[1])
                return tree_map_only(torch.Tensor, self.promote, result)
            self.violations.append(f"aten.{name}")
            raise ForbiddenOperatorError(reason)
        by_values = sized_by_values(name, args, kwargs)
        if by_values is not None:
            with self:
                return by_values(*args, **kwargs)
        given: list[TracedTensor] = []
        plain_args = self._plain(args, given)
        plain_kwargs = {key: self._plain(value, given) for key, value in kwargs.items() if key not in _HOST_ONLY}
        if "memory_format" in kwargs:
            plain_kwargs["memory_format"] = kwargs["memory_format"]
        if not given and _takes_device(func):
            plain_kwargs["device"] = _META
        try:
            result = SHAPES.get(name, func)(*plain_args, **plain_kwargs)
        except NotImplementedError as error:
            raise ForbiddenOperatorError(f"aten.{name}: its result's shape depends on values") from error
        is_on_host = _is_on_host(func, given, kwargs)
        if isinstance(result, torch.Tensor):
            wrapped = results = self._wrap(result, given, is_on_host)
            views = [results]
        elif isinstance(result, tuple | list):
            views = [self._wrap(item, given, is_on_host) if isinstance(item, torch.Tensor) else None for item in result]
            wrapped = type(result)(views)
        else:
            return result
        if func.is_view or name in ("detach", "_unsafe_view", "_reshape_alias", "lift_fresh"):
            return wrapped
        encoded = [self._encode(value) for value in args]
        named = {key: self._encode(value) for key, value in kwargs.items() if key not in _HOST_ONLY}
        self.command(
            {
                "kind": "operate",
                "name": name,
                "overload": func._overloadname,
                "arguments": encoded,
                "named": named,
                "results": [None if view is None else self.view_of(view) for view in views],
            }
        )
        return wrapped

    def _host_numbers(self, args: Any, kwargs: Any) -> Any:
        """Return arguments with the values of their tensors, if those are a few numbers that host code made; else None.

        PyTorch computes `torch.prod(torch.tensor(x.shape))` on the host. Nothing of it reaches the device.
        """
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        if not tensors or any(value.numel() > _MOST_HOST_NUMBERS for value in tensors):
            return None
        handles = [value for value in tensors if isinstance(value, TracedTensor)]
        if any(value.kernels_eval_memory.content is None for value in handles):
            return None
        with _disable_modes():
            return tree_map_only(TracedTensor, _of_content, (args, kwargs))

    def _read_value(self, tensor: torch.Tensor) -> Any:
        numbers = self._host_numbers(tensor, None)
        if numbers is not None:
            return numbers[0].item()
        value = self._asked(tensor)
        return value[0] if isinstance(value, list) else value  # of one element in a dimension

    def read_list(self, tensor: torch.Tensor) -> Any:
        """Return the values of whole numbers, as `tolist` does. The device waits once for all of them."""
        numbers = self._host_numbers(tensor, None)
        if numbers is not None or not tensor.numel():
            with _disable_modes():
                return (torch.empty(tensor.shape) if numbers is None else numbers[0]).tolist()
        values = self._asked(tensor)
        for length in reversed(tensor.shape[1:]):
            values = [values[first : first + length] for first in range(0, len(values), length)]
        return values

    def _asked(self, tensor: torch.Tensor) -> Any:
        """Ask the judge for the value of a tensor, or for a list of its values if it has a dimension."""
        is_float = tensor.is_floating_point()
        most = MAX_HOST_READS if is_float else MAX_HOST_INTEGERS
        self._host_reads[is_float] += tensor.numel()
        if (found := self._host_reads[is_float]) > most:
            self.violations.append("aten._local_scalar_dense")
            raise ForbiddenOperatorError(
                f"aten._local_scalar_dense: {found} values read on the host in one call; "
                f"it may read {MAX_HOST_INTEGERS} whole numbers and {MAX_HOST_READS} others"
            )
        view = self.view_of(self.promote(tensor))
        self.streams.wait_on_host(self.streams.times(self.streams.current))
        self.command({"kind": "synchronise", "reads": True})
        return self._read(view)

    def synchronise(self, is_for_all: bool = True) -> None:
        """Record that host code waits, if it does so within a call: for the device, or `is_for_all` not, for a part."""
        if is_for_all:
            self.streams.wait_for_all()
        if self.is_in_call:
            self.command({"kind": "synchronise", "reads": False})

    def _plain(self, value: Any, given: list[TracedTensor]) -> Any:
        if isinstance(value, torch.Tensor):
            handle = self.promote(value)
            given.append(handle)
            return handle.kernels_eval_plain
        if isinstance(value, list | tuple):
            return type(value)([self._plain(item, given) for item in value]) if type(value) in (list, tuple) else value
        return value

    def _encode(self, value: Any) -> dict[str, Any]:
        if isinstance(value, torch.Tensor):
            return self.view_of(self.promote(value))
        if isinstance(value, list | tuple):
            return {"kind": "sequence", "items": [self._encode(item) for item in value]}
        if isinstance(value, torch.dtype):
            return {"kind": "dtype", "name": str(value).removeprefix("torch.")}
        if value is None or isinstance(value, bool | int | float | str):
            self.addresses.put_number(value)
            return {"kind": "plain", "value": value}
        raise ForbiddenOperatorError(f"a {type(value).__name__} cannot be passed to an operator here")

    def _wrap(self, plain: torch.Tensor, given: list[TracedTensor], is_on_host: bool) -> TracedTensor:
        storage = plain.untyped_storage()
        for handle in given:
            if plain is handle.kernels_eval_plain:
                return handle
            if _same_storage(storage, handle.kernels_eval_memory.meta):
                return self._handle(plain, handle.kernels_eval_memory)
        made = Memory(self, self._number(), storage)
        made.is_on_host = is_on_host
        return self._handle(plain, made)

    def _handle(self, plain: torch.Tensor, memory: Memory) -> TracedTensor:
        handle: TracedTensor = torch.Tensor._make_subclass(  # pyright: ignore
            TracedTensor, plain, False, device_for_backend_keys=DEVICE
        )
        handle.kernels_eval_plain = plain
        handle.kernels_eval_memory = memory
        return handle

    def _number(self) -> int:
        self._next += 1
        return self._next - 1


def _of_content(handle: TracedTensor) -> torch.Tensor:
    """Return the values of a traced tensor of the host that was not uploaded yet."""
    storage = handle.kernels_eval_memory.content.untyped_storage()
    values = torch.empty(0, dtype=handle.dtype)
    return values.set_(storage, handle.storage_offset(), handle.shape, handle.stride())


def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _same_storage(first: Any, second: Any) -> bool:
    """Compare identities: storages on the meta device have no address."""
    return first._cdata == second._cdata


def _is_on_host(func: Any, given: list[TracedTensor], kwargs: dict[str, Any]) -> bool:
    """Return whether an operator's result lies on the host: as it is asked for, else as the operands do.

    A creation function that names no device makes a tensor of the host; a second GPU is as far away. Kernels reach
    pinned memory.
    """
    device = kwargs.get("device")
    if device is not None:
        wanted = torch.device(device)
        return bool(wanted.index) or (wanted.type == "cpu" and not kwargs.get("pin_memory"))
    if given:
        return all(handle.kernels_eval_memory.is_on_host for handle in given)
    return _takes_device(func) and not kwargs.get("pin_memory")


def storages(value: Any) -> set[int]:
    """Find the storages of all views in a part of a command."""
    if isinstance(value, dict):
        own = {value["storage"]} if value.get("kind") == "view" else set[int]()
        return own.union(*map(storages, value.values()))
    return set[int]().union(*map(storages, value)) if isinstance(value, list | tuple) else set()


def _takes_device(func: Any) -> bool:
    return any(argument.name == "device" for argument in func._schema.arguments)
