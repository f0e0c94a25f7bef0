"""Embedded engine: a Hugging Face model in the rollout worker's process, decoded in static batches.

The default on machines without a GPU. Batches run one after another on one thread; the event loop passes finished
responses to the judge meanwhile. A batch holds the requests of one call of `generate`, sorted by prompt length.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from kernels_eval.errors import InfrastructureError, InputError
from tasks.cluster.devices import has_gpu
from tasks.models.policy import attention_kinds, load_policy
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import Generation, GenerationRequest, stop_tokens
from tasks.rollout.engines.local.decoding import decode_batch, decoder_of


class TransformersEngine:
    """A model and its batches. Use from one event loop; `close` when done."""

    def __init__(self, model: PreTrainedModel, stop_token_ids: frozenset[int], batch_size: int) -> None:
        """Raise InputError if the model has layers other than full attention: the cache supports no others."""
        kinds = attention_kinds(model.config)
        if kinds != {"full_attention"}:
            raise InputError(
                f"rollout.engine: transformers: the model has layers of kind {', '.join(sorted(kinds))}, expected "
                "full_attention only; use sglang"
            )
        self._model = model.eval()
        self._decoder = decoder_of(model)
        self._stop_token_ids = stop_token_ids
        self._batch_size = batch_size
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="generation")
        self._closed = threading.Event()

    @property
    def context_tokens(self) -> int:
        """The model's number of positions."""
        return int(self._model.config.max_position_embeddings)

    @property
    def cohort_size(self) -> int:
        """A whole batch."""
        return self._batch_size

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        """Yield responses as they end. The same requests and policy give the same responses, to the bit."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Queue[tuple[int, Generation] | None] = asyncio.Queue()
        abandoned = threading.Event()
        started = time.perf_counter()

        def post(item: tuple[int, Generation] | None) -> None:
            loop.call_soon_threadsafe(ended.put_nowait, item)

        def decode() -> None:
            try:
                for batch in self._batches(requests):
                    decode_batch(
                        self._model,
                        [requests[index].prompt_token_ids for index in batch],
                        [requests[index].seed for index in batch],
                        sampling,
                        self._stop_token_ids,
                        on_ended=lambda index, generation, batch=batch: post((batch[index], generation)),
                        cancelled=lambda: abandoned.is_set() or self._closed.is_set(),
                        decoder=self._decoder,
                    )
            finally:
                post(None)

        decoding = loop.run_in_executor(self._thread, decode)
        try:
            while (item := await ended.get()) is not None:
                index, generation = item
                yield index, replace(generation, seconds=time.perf_counter() - started)
            try:
                await decoding
            except torch.OutOfMemoryError as error:
                raise InfrastructureError(
                    f"the embedded engine ran out of memory ({len(requests)} sequences): lower rollout.batch_size"
                ) from error
        finally:
            abandoned.set()

    async def close(self) -> None:
        """Stop the batch under way and free the model."""
        self._closed.set()
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    def _batches(self, requests: Sequence[GenerationRequest]) -> list[list[int]]:
        """Cut requests into batches by prompt length; equal prompts stay side by side."""
        order = sorted(
            range(len(requests)),
            key=lambda index: (len(requests[index].prompt_token_ids), requests[index].prompt_token_ids),
        )
        return [order[start : start + self._batch_size] for start in range(0, len(order), self._batch_size)]


def load_engine(path: Path, tokenizer: Any, batch_size: int) -> TransformersEngine:
    """Load a policy from its folder. Raises InputError if it holds none."""
    # On CPUs float32: bfloat16 would lose digits of the recorded log-probabilities, even with its instructions.
    on_gpu = has_gpu()
    model = load_policy(path, "bfloat16" if on_gpu else "float32")
    if on_gpu:
        model = model.to("cuda")  # pyright: ignore[reportArgumentType]
    return TransformersEngine(model, stop_tokens(model.generation_config, tokenizer), batch_size)
