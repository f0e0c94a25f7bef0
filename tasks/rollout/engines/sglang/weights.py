"""Weight synchronisation with SGLang servers: push, label, and compare with the checkpoint before use.

A push: pause generation (running requests are aborted), flush the cache, load the weights (`rollout.sglang.push`: from
the checkpoint's folder, or as tensors), flush again, resume. The label is the checkpoint's digest; every answer
carries it.

Where servers take adapters (`rollout.sglang.adapter_rank`) they hold the policy's base, which is pushed so where they
hold another one. Then each policy's adapter is loaded beside it, without a pause, under a name that each request says;
earlier ones of the same engine are removed. The label is that of the base.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx

from kernels_eval.errors import InfrastructureError, KernelmillError
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import SamplingConfig, SglangConfig
from tasks.rollout.engines.sglang.api import SglangApi
from tasks.rollout.engines.sglang.canary import (
    NEW_TOKENS,
    Answer,
    CanaryResult,
    VerifiedWeights,
    compare,
    reference_logprobs,
    verified_weights,
)
from tasks.rollout.engines.sglang.generation import FailureKind, ServerError
from tasks.rollout.engines.sglang.pool import Member
from tasks.rollout.engines.sglang.served_policy import ServedPolicy, read_policy

logger = logging.getLogger("kernelmill.rollout")

_FLUSH_S = 10.0
_POLL_S = 0.5

_verified: dict[tuple[str, str], VerifiedWeights] = {}
"""By address and beginning of adapters' names, the policy that a server was last verified to answer with. Lives as long
as the process, not the engine: a server that was refused is measured against the same weights when the rollout is tried
again."""
_labels: dict[str, str] = {}
"""By address, the label under which it was so verified."""


class WeightSync:
    """Synchronises servers with a policy. Opens new connections: usable from any event loop."""

    def __init__(self, config: SglangConfig) -> None:
        self._config = config
        self._current: ServedPolicy | None = None
        self._prefix = f"{uuid.uuid4().hex[:8]}-" if config.adapter_rank else ""
        self.push = config.push
        """Way in which weights reach servers (`rollout.sglang.push`)."""
        self.pushes: Counter[str] = Counter()
        """Pushes so far: from `disk`, as `tensors`, of an `adapter`."""
        self._capacities: dict[str, int] = {}
        self.results: dict[str, CanaryResult] = {}
        """By address: last result of the canary."""

    @property
    def context_tokens(self) -> int:
        """Smallest context of the policy and all servers synchronised so far."""
        assert self._current is not None
        return min([self._current.context_tokens, *self._capacities.values()])

    async def prepare(self, policy: CheckpointRef, tokenizer: Any) -> ServedPolicy:
        """Read a policy before it is served. Raises InputError if it is not one."""
        current = self._current
        if current is not None and (current.path, current.digest) == (policy.path.resolve(), policy.digest):
            return current
        served = await asyncio.to_thread(read_policy, policy, tokenizer, self._config.canary_prompts, self._prefix)
        if current is not None:
            current.remove_links()
        self._current = served
        return served

    async def sync(
        self, members: Sequence[Member], policy: ServedPolicy, patience_s: float | None = None
    ) -> dict[Member, ServerError | InfrastructureError | None]:
        """Push the weights to the servers and compare; return per server the error, or None if it passed.

        InfrastructureError: it answers from other weights, and must not be used. `patience_s`: how long to wait for one
        that does not answer yet; by default as long as a server may take to start.
        """
        patience_s = self._config.start_timeout_s if patience_s is None else patience_s
        async with httpx.AsyncClient(trust_env=False) as client:
            asked = [self._sync(SglangApi(member.url, client), member, policy, patience_s) for member in members]
            outcomes = dict(zip(members, await asyncio.gather(*asked), strict=True))
        errors = {member: outcome for member, outcome in outcomes.items() if isinstance(outcome, ServerError)}
        answers = {member: outcome for member, outcome in outcomes.items() if isinstance(outcome, list)}
        refusals = await asyncio.to_thread(self._compare, answers, policy) if answers else {}
        return {**errors, **refusals}

    def close(self) -> None:
        """Remove written links."""
        if self._current is not None:
            self._current.remove_links()

    async def _sync(
        self, api: SglangApi, member: Member, policy: ServedPolicy, patience_s: float
    ) -> list[Answer] | ServerError:
        try:
            async with member.changing:
                return await self._changed(api, member, policy, patience_s)
        except ServerError as error:
            return error

    async def _changed(self, api: SglangApi, member: Member, policy: ServedPolicy, patience_s: float) -> list[Answer]:
        """Have the server hold the policy, and return its answers to the canary."""
        if member.supervisor is not None:
            # First, because a server that dies from here on must restart with the new weights.
            await member.supervisor.set_model(str(policy.folder), policy.version)
        if not member.is_verified:
            await self._wait_until_healthy(api, member, patience_s)
        # The label alone is not trusted if the server was last verified to hold other weights.
        if {await api.weight_version(), _labels.get(member.url, policy.version)} != {policy.version}:
            await self._push(api, member, policy)
        if self._prefix:
            await self._load_adapter(api, policy)
        self._capacities[member.url] = await api.context_tokens()
        # Sequentially: sharing a batch changes the last bits.
        return [await self._canary_answer(api, policy, number) for number in range(len(policy.prompts))]

    async def _load_adapter(self, api: SglangApi, policy: ServedPolicy) -> None:
        """Load the policy's adapter, if it has one and the server does not hold it; remove this engine's other ones."""
        wanted, held = policy.adapter, await api.adapters()
        if wanted is not None and wanted.name not in held:
            await api.load_adapter(wanted.name, str(wanted.folder), self._config.start_timeout_s)
            self.pushes["adapter"] += 1
        for name in held:
            if name.startswith(self._prefix) and (wanted is None or name != wanted.name):
                await api.unload_adapter(name, self._config.request_timeout_s)

    async def _wait_until_healthy(self, api: SglangApi, member: Member, patience_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while True:
            try:
                await api.resume()  # whoever paused it may have died since; a paused server is not healthy
                if await api.is_healthy():
                    return
                failure = ServerError(FailureKind.FAILED, api.url, "not healthy: it does not generate")
            except ServerError as error:
                failure = error
            if member.supervisor is not None and (state := await member.supervisor.state()).gave_up:
                raise ServerError(FailureKind.UNREACHABLE, api.url, state.report)
            if loop.time() >= deadline:
                raise failure
            await asyncio.sleep(_POLL_S)

    async def _push(self, api: SglangApi, member: Member, policy: ServedPolicy) -> None:
        as_tensors = await self._uses_tensors(member)
        await api.pause()
        try:
            await self._flush(api)
            if as_tensors:
                try:
                    await self._send_tensors(api, policy)
                except ServerError as error:
                    if self.push == "tensors" or error.kind is FailureKind.UNREACHABLE:
                        raise
                    logger.warning("%s; the weights are loaded from disk instead", error)
                    as_tensors = False
            if not as_tensors:
                await api.load_weights(str(policy.folder), policy.version, self._config.start_timeout_s)
            self.pushes["tensors" if as_tensors else "disk"] += 1
            await self._flush(api)
        finally:
            await api.resume()

    async def _uses_tensors(self, member: Member) -> bool:
        """True if a server gets tensors instead of a folder's name."""
        if self.push != "auto" or member.supervisor is None:
            return self.push == "tensors"
        from tasks.rollout.engines.sglang.tensors import shares_gpu

        state = await member.supervisor.state()
        return shares_gpu(state.visible_gpus)

    async def _send_tensors(self, api: SglangApi, policy: ServedPolicy) -> None:
        """Send the weights message by message; the last one brings the label."""
        import torch

        from tasks.cluster.devices import has_gpu
        from tasks.rollout.engines.sglang.tensors import messages

        waiting = messages(policy.weights, "cuda" if has_gpu() else "cpu")
        try:
            message = await asyncio.to_thread(next, waiting, None)
            while message is not None:
                following = await asyncio.to_thread(next, waiting, None)
                label = policy.version if following is None else None
                await api.load_tensors(message[0], label, self._config.start_timeout_s)
                message = following
        except torch.OutOfMemoryError as error:
            raise ServerError(FailureKind.FAILED, api.url, "no GPU memory for the tensors of a message") from error

    async def _flush(self, api: SglangApi) -> None:
        """Flush as soon as the server is idle: aborted requests take a moment to end."""
        deadline = asyncio.get_running_loop().time() + _FLUSH_S
        while not await api.flush():
            if asyncio.get_running_loop().time() >= deadline:
                raise ServerError(FailureKind.FAILED, api.url, f"still busy {_FLUSH_S:g} s after it was paused")
            await asyncio.sleep(_POLL_S / 5)

    async def _canary_answer(self, api: SglangApi, policy: ServedPolicy, number: int) -> Answer:
        """Have one prompt continued, then scored again."""
        prompt = policy.prompts[number]
        sampling, timeout_s = SamplingConfig(max_new_tokens=NEW_TOKENS), self._config.request_timeout_s
        sampled, scores = await api.generate_and_score(policy.request(prompt, number, sampling), timeout_s)
        again = await api.score(policy.request(prompt, number, sampling), 1, timeout_s)
        return Answer((*prompt, *sampled.token_ids), len(prompt), (*scores, *sampled.logprobs), again)

    def _compare(
        self, answers: dict[Member, list[Answer]], policy: ServedPolicy
    ) -> dict[Member, InfrastructureError | None]:
        sequences = list(dict.fromkeys(answer.token_ids for given in answers.values() for answer in given))
        try:
            scores = reference_logprobs(policy.path, self._config.canary_dtype, sequences)
        except KernelmillError as error:
            raise InfrastructureError(f"the canary's reference could not be computed: {error}") from error
        by_sequence = dict(zip(sequences, scores, strict=True))
        outcomes: dict[Member, InfrastructureError | None] = {}
        for member, given in answers.items():
            expected = [by_sequence[answer.token_ids] for answer in given]
            slot = (member.url, self._prefix)
            before = _verified.get(slot)
            result = compare(given, expected, before if before and before.version != policy.digest else None)
            self.results[member.url] = result
            refusal = result.refusal(self._config.canary_threshold)
            if refusal is None:
                _verified[slot] = verified_weights(policy.digest, given, expected)
                _labels[member.url] = policy.version
            outcomes[member] = InfrastructureError(f"SGLang server {member.url}: {refusal}") if refusal else None
            logger.info("canary of %s: %s", member.url, result)
        return outcomes
