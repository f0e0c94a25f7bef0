"""Calls of one round, in the judge's worker: inputs laid out and published, outputs collected, wrong writes found.

No input is there before a round is made: a pattern stands in its place while a candidate launches its calls, and all
inputs come just before the round is timed, or those of each call just before it. At the round's end, samples are taken
of the outputs at secret places: what is written later differs from them.
"""

import random
from collections.abc import Iterable
from typing import Any

import torch

from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.shared_memory import (
    GUARD_BYTES,
    POISON,
    CallSlots,
    IpcTransport,
    Layout,
    Transport,
    apart,
    view,
)
from kernels_eval.gpu.device.watch import PIECE_BYTES, Watch
from kernels_eval.reference.inputs import same_bytes
from kernels_eval.sandbox.tensor_bytes import DTYPES, TensorForm, form_of

_MIN_SAMPLES = 64
_RANDOM = random.SystemRandom()


class SharedCalls:
    """Inputs and outputs of one round's calls: inputs are prepared in private memory, outputs are copied there."""

    def __init__(
        self, transport: Transport, layout: Layout, sets: Iterable[list[Any]], output_forms: list[TensorForm]
    ) -> None:
        """`sets`: inputs of each call, copied one set after another."""
        self._transport = transport
        self._layout = layout
        self.output_forms = output_forms
        """Forms of the outputs of each call."""
        self.nbytes = layout.nbytes
        self._prepared = torch.full((layout.outputs_from,), POISON, dtype=torch.uint8, device=cuda_driver.DEVICE)
        self._collected = torch.empty(0, dtype=torch.uint8)
        self._sampled = torch.empty(0, dtype=torch.int64)
        """Numbers of pieces of the shared memory that are sampled."""
        self._samples = torch.empty(0, dtype=torch.int64)
        self._untouched: bool | None = None
        """None: not looked at since `publish`."""
        self._piece = 0
        """Offset of a piece of the first call's outputs; what stands there in every call is sampled first."""
        self._first_samples = torch.empty(0, dtype=torch.uint8)
        self._watched = 0
        """Offset of the piece that is watched."""
        self._seen: list[tuple[int, torch.Tensor]] = []
        """Offset of a watched piece, and what was seen of it once its call's end had been told."""
        self.sets = [self._prepare(values, slots) for values, slots in zip(sets, layout.calls, strict=True)]
        """Inputs of each call, in the private memory."""

    def _prepare(self, values: list[Any], slots: CallSlots) -> list[Any]:
        placed: list[Any] = []
        for value, offset in zip(values, slots.inputs, strict=True):
            if offset is None:
                placed.append(value)
                continue
            placed.append(apart(self._prepared, form_of(value), offset))
            if value.numel():
                placed[-1].copy_(value)
        return placed

    @property
    def count(self) -> int:
        """Number of calls."""
        return len(self.sets)

    def inputs(self, index: int) -> torch.Tensor:
        """Return one input of all calls in the private memory, (calls, …), without copying."""
        form = form_of(self.sets[0][index])
        offsets = [slots.inputs[index] or 0 for slots in self._layout.calls[:2]]
        return self._of_all_calls(self._prepared, form, offsets[0], offsets[-1] - offsets[0]).view(
            self.count, *form.shape
        )

    def requests(self) -> list[dict[str, Any]]:
        """Return the description of each call for the candidate's process."""
        return [
            {
                "inputs": [
                    {"value": value} if offset is None else {"form": form_of(value).model_dump(), "offset": offset}
                    for value, offset in zip(values, slots.inputs, strict=True)
                ],
                "outputs": [
                    {"offset": offset, "nbytes": form.nbytes}
                    for form, offset in zip(self.output_forms, slots.outputs, strict=True)
                ],
            }
            for values, slots in zip(self.sets, self._layout.calls, strict=True)
        ]

    def publish(self) -> None:
        """Fill the shared memory with the pattern: no input is there before `complete`, or `deliver`."""
        self._untouched = None
        memory, end = self._transport.memory(), self._layout.outputs_from
        if self._collected.numel() != self.nbytes - end:  # memory is found now, not while others wait for a timed round
            self._collected = torch.empty_like(memory[end : self.nbytes])
        memory[: self.nbytes].fill_(POISON)
        outputs = self._outputs()
        self._sampled = _pieces(outputs * -(-_MIN_SAMPLES // max(len(outputs), 1)))
        in_first = outputs[: len(self.output_forms)]
        self._piece = PIECE_BYTES * _piece(*_RANDOM.choice(in_first)) if in_first else end
        self._first_samples = self._first_samples[:0].view(0, PIECE_BYTES)
        self._seen = []
        self._transport.clear_end()
        self._transport.push(self.nbytes)

    def complete(self) -> None:
        """Copy all inputs, by one operation; returns when they have arrived.

        What was written to the outputs before is lost: it depends on no input, and took no time.
        """
        memory, end = self._transport.memory(), self._layout.outputs_from
        memory[end : self.nbytes].fill_(POISON)
        memory[:end].copy_(self._prepared)
        self._transport.push(self.nbytes)

    def stage(self) -> None:
        """Have all inputs ready for `deliver`. Only where memory is shared."""
        assert isinstance(self._transport, IpcTransport)
        self._transport.stage(self._prepared)

    def deliver(self, call: int, is_private: bool = False) -> None:
        """Copy the inputs of one call, without a kernel; returns when they have arrived.

        `is_private`: to the private memory, where they stand already: for the reference, whose inputs are then as
        fresh as a candidate's.
        """
        assert isinstance(self._transport, IpcTransport)
        start, end = self._extent(call)
        if start < end:
            self._transport.deliver(start, end, self._prepared if is_private else None)

    def _extent(self, call: int) -> tuple[int, int]:
        """Return from where to where the inputs of a call lie, with the guards before them."""
        offsets = [offset for offset in self._layout.calls[call].inputs if offset is not None]
        if not offsets:
            return 0, 0
        following = self._layout.calls[call + 1].inputs if call + 1 < self.count else ()
        end = min((offset for offset in following if offset is not None), default=None)
        return offsets[0] - GUARD_BYTES, self._layout.outputs_from if end is None else end - GUARD_BYTES

    def sample_at_end(self) -> None:
        """Have the device itself take what `sample_at_once` notes, when it tells the end."""
        self._transport.queue_pieces(self._piece, self._distance, self.count)

    def forget_samples(self) -> None:
        """Take `sample_at_end` back: the round has failed."""
        self._transport.forget_pieces()

    def sample_at_once(self) -> float:
        """Note what stands at one secret place of every call; returns the clock when that was here.

        Without a kernel: before the device changes to this process, which leaves a candidate another 0.1 ms.
        """
        self._first_samples, came_s = self._transport.pieces(self._piece, self._distance, self.count)
        return came_s

    def sample_call(self, call: int) -> float:
        """Do the same for one call: for all calls in turn, instead of `sample_at_once`."""
        sample, came_s = self._transport.pieces(self._piece + call * self._distance, self._distance, 1)
        self._first_samples = torch.cat([self._first_samples, sample])
        return came_s

    def watch(self, call: int) -> Watch | None:
        """Queue the inputs of one call, instead of `deliver`, and looks at its end and a secret piece of its outputs.

        None where that cannot be had.
        """
        assert isinstance(self._transport, IpcTransport)
        outputs = self._outputs()[call * len(self.output_forms) : (call + 1) * len(self.output_forms)]
        if not outputs:
            return None
        offset = PIECE_BYTES * _piece(*_RANDOM.choice(outputs))
        watch = self._transport.watch(offset, call + 1, *self._extent(call))
        self._watched = offset
        return watch

    def keep_looks(self, watch: Watch) -> None:
        """Keep what was seen of the call that was watched last."""
        self._seen.append((self._watched, watch.pieces_after_end()))

    def sample(self) -> None:
        """Note what stands at secret places of all outputs; returns when it is here."""
        self._transport.pull(self.nbytes)
        self._samples = _rows(self._transport.memory())[self._sampled].cpu()

    def has_late_writes(self) -> bool:
        """True if the outputs collected are others than those sampled."""
        start = self._layout.outputs_from
        places = self._sampled - start // PIECE_BYTES
        first = self._first_samples
        pieces = self._collected.as_strided((len(first), PIECE_BYTES), (self._distance, 1), self._piece - start)
        in_time = torch.equal(pieces.cpu(), first) and torch.equal(_rows(self._collected)[places].cpu(), self._samples)
        return not (in_time and all(self._is_final(offset - start, seen) for offset, seen in self._seen))

    def _is_final(self, start: int, seen: torch.Tensor) -> bool:
        """True if nothing else was seen of a piece than what was collected."""
        return bool((seen == self._collected[start : start + PIECE_BYTES].cpu()).all())

    def _outputs(self) -> list[tuple[int, int]]:
        """Return offset and size of each output."""
        sizes = [form.nbytes for form in self.output_forms]
        return [pair for slots in self._layout.calls for pair in zip(slots.outputs, sizes, strict=True)]

    def collect(self) -> None:
        """Copy the outputs out of the shared memory."""
        self._transport.pull(self.nbytes)
        self._collected.copy_(self._transport.memory()[self._layout.outputs_from : self.nbytes])

    def output(self, call: int, index: int, form: TensorForm) -> torch.Tensor:
        """Return one output as collected."""
        return view(self._collected, form, self._layout.calls[call].outputs[index] - self._layout.outputs_from)

    def outputs(self, index: int) -> torch.Tensor:
        """Return one output of all calls as collected, (calls, elements), without copying."""
        first = self._layout.calls[0].outputs[index] - self._layout.outputs_from
        return self._of_all_calls(self._collected, self.output_forms[index], first, self._distance)

    def _of_all_calls(self, memory: torch.Tensor, form: TensorForm, first: int, distance: int) -> torch.Tensor:
        """Return a tensor of all calls, (calls, elements), of which the first one begins at an offset of the memory."""
        typed = memory[: memory.numel() // 16 * 16].view(DTYPES[form.dtype])
        size = typed.element_size()
        return typed.as_strided((self.count, form.nbytes // size), (distance // size, 1), first // size)

    def changed_inputs(self) -> set[int]:
        """Return the indices of inputs that some call changed."""
        if self._inputs_are_untouched():
            return set()
        changed: set[int] = set()
        for values, slots in zip(self.sets, self._layout.calls, strict=True):
            for index, (value, offset) in enumerate(zip(values, slots.inputs, strict=True)):
                if offset is not None and value.numel():
                    here = slice(offset, offset + form_of(value).nbytes)
                    if not same_bytes(self._transport.memory()[here], self._prepared[here]):
                        changed.add(index)
        return changed

    def has_broken_guards(self) -> bool:
        """True if something was written between the slots."""
        slots = self._layout.calls
        if not self._inputs_are_untouched():
            shared = self._transport.memory()
            given = (offset for call in slots for offset in call.inputs if offset is not None)
            if any(bool((shared[start - GUARD_BYTES : start] != POISON).any()) for start in given):
                return True
        return any(self._has_broken_guard_before(offset - self._layout.outputs_from) for offset in slots[0].outputs)

    def _inputs_are_untouched(self) -> bool:
        """True if inputs and the guards between them are as they were prepared."""
        if self._untouched is None:
            self._untouched = same_bytes(self._transport.memory()[: self._layout.outputs_from], self._prepared)
        return self._untouched

    def _has_broken_guard_before(self, start: int) -> bool:
        """Look at the guards before one output of all calls."""
        step = self._distance if self.count > 1 else GUARD_BYTES
        guards = self._collected.as_strided((self.count, GUARD_BYTES), (step, 1), start - GUARD_BYTES)
        return bool((guards != POISON).any())

    @property
    def _distance(self) -> int:
        """Bytes from one call's outputs to the next one's; of a single call those of a piece."""
        if self.count < 2 or not self.output_forms:
            return PIECE_BYTES
        return self._layout.calls[1].outputs[0] - self._layout.calls[0].outputs[0]


def _pieces(tensors: list[tuple[int, int]]) -> torch.Tensor:
    """Return the number of a piece of each tensor, at random."""
    drawn = [_piece(offset, nbytes) for offset, nbytes in tensors]
    return torch.tensor(drawn, dtype=torch.int64, device=cuda_driver.DEVICE)


def _piece(offset: int, nbytes: int) -> int:
    """Return the number of a piece of a tensor, at random. A small tensor is a piece, with what follows it."""
    return offset // PIECE_BYTES + _RANDOM.randrange(max(1, nbytes // PIECE_BYTES))


def _rows(memory: torch.Tensor) -> torch.Tensor:
    """Return bytes as pieces: (pieces, words), without copying. A rest at the end is left out."""
    words = memory[: memory.numel() // PIECE_BYTES * PIECE_BYTES].view(torch.int64)
    return words.view(-1, PIECE_BYTES // 8)
