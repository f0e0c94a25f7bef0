"""The decode loop against full forward passes and against itself in other batches."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.models.policy import load_policy
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import FinishReason, Generation
from tasks.rollout.engines.local.decoding import LibraryBatch, decode_batch

SAMPLING = SamplingConfig(max_new_tokens=24)
STOP = frozenset(range(0, 40))


def random_prompts(groups: int, samples: int, seed: int = 0) -> list[tuple[int, ...]]:
    generator = random.Random(seed)
    prompts = [tuple(generator.randrange(300) for _ in range(generator.randint(1, 40))) for _ in range(groups)]
    return [prompt for prompt in prompts for _ in range(samples)]


def decoded(model: Any, prompts: list[tuple[int, ...]], seeds: list[int], **options: Any) -> list[Generation]:
    found: list[tuple[int, Generation]] = []
    options = {"sampling": SAMPLING, "stop_token_ids": STOP} | options
    decode_batch(model, prompts, seeds, on_ended=lambda index, generation: found.append((index, generation)), **options)
    assert sorted(index for index, _ in found) == list(range(len(prompts))), "each sequence ends exactly once"
    return [generation for _, generation in sorted(found, key=lambda item: item[0])]


def recomputed(model: Any, prompt: tuple[int, ...], response: tuple[int, ...]) -> torch.Tensor:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0]
    logprobs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return logprobs.gather(1, torch.tensor(response).unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_log_probabilities_are_those_of_a_full_forward_pass(small_policy: Any, temperature: float) -> None:
    prompts = random_prompts(6, 4)
    sampling = SamplingConfig(max_new_tokens=24, temperature=temperature, top_p=0.95 if temperature else 1.0)
    for prompt, item in zip(prompts, decoded(small_policy, prompts, list(range(24)), sampling=sampling), strict=True):
        expected = recomputed(small_policy, prompt, item.token_ids)
        assert torch.allclose(torch.tensor(item.logprobs), expected, atol=1e-5, rtol=0)


def test_a_mixture_of_experts_is_decoded_as_by_a_full_forward_pass(
    tmp_path: Path, save_experts: Callable[..., None]
) -> None:
    """Also where its configuration asks for the router's auxiliary loss, which does not fit the decoder's masks."""
    save_experts(tmp_path / "policy", output_router_logits=True)
    model, prompts = load_policy(tmp_path / "policy").eval(), random_prompts(6, 4)
    for prompt, item in zip(prompts, decoded(model, prompts, list(range(24))), strict=True):
        expected = recomputed(model, prompt, item.token_ids)
        assert torch.allclose(torch.tensor(item.logprobs), expected, atol=1e-5, rtol=0)


def test_sequences_end_at_their_stop_token_or_at_the_limit(small_policy: Any) -> None:
    reasons = set()
    for item in decoded(small_policy, random_prompts(8, 4), list(range(32))):
        reasons.add(item.finish_reason)
        assert not set(item.token_ids[:-1]) & STOP
        if item.finish_reason is FinishReason.STOP:
            assert item.token_ids[-1] in STOP
        else:
            assert len(item.token_ids) == SAMPLING.max_new_tokens
            assert item.token_ids[-1] not in STOP
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}, "the test shows both"


def test_sharing_a_group_s_prompt_changes_nothing(small_policy: Any) -> None:
    prompts = random_prompts(3, 4)
    shared = decoded(small_policy, prompts, list(range(12)))
    for one, prompt, seed in zip(shared, prompts, range(12), strict=True):
        (alone,) = decoded(small_policy, [prompt], [seed])
        assert (one.token_ids, one.finish_reason) == (alone.token_ids, alone.finish_reason)
        assert torch.allclose(torch.tensor(one.logprobs), torch.tensor(alone.logprobs), atol=1e-5, rtol=0)


def test_the_library_s_forward_gives_the_same(small_policy: Any) -> None:
    prompts = random_prompts(6, 4)
    written = decoded(small_policy, prompts, list(range(24)))
    library = decoded(small_policy, prompts, list(range(24)), decoder=partial(LibraryBatch, small_policy))
    for one, other in zip(written, library, strict=True):
        assert (one.token_ids, one.finish_reason) == (other.token_ids, other.finish_reason)
        assert torch.allclose(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-5, rtol=0)


def test_a_sequence_does_not_depend_on_its_batch(small_policy: Any) -> None:
    prompts = random_prompts(6, 4)
    together = decoded(small_policy, prompts, list(range(24)))
    for index in (0, 7, 23):
        (alone,) = decoded(small_policy, [prompts[index]], [index])
        assert alone.token_ids == together[index].token_ids
        assert torch.allclose(torch.tensor(alone.logprobs), torch.tensor(together[index].logprobs), atol=1e-5, rtol=0)


def test_the_same_batch_gives_the_same_bits(small_policy: Any) -> None:
    prompts = random_prompts(6, 4)
    assert decoded(small_policy, prompts, list(range(24))) == decoded(small_policy, prompts, list(range(24)))


def test_greedy_equals_hugging_face_generate(small_policy: Any) -> None:
    prompts = random_prompts(4, 1)
    sampling = SamplingConfig(max_new_tokens=24, temperature=0)
    for prompt, item in zip(prompts, decoded(small_policy, prompts, [0] * 4, sampling=sampling), strict=True):
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            expected = small_policy.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, eos_token_id=sorted(STOP)
            )
        assert item.token_ids == tuple(expected[0, ids.shape[1] :].tolist())


def test_cancelling_stops_early(small_policy: Any) -> None:
    calls = 0

    def cancelled() -> bool:
        nonlocal calls
        calls += 1
        return calls == 3

    decode_batch(small_policy, random_prompts(2, 2), [0] * 4, SAMPLING, frozenset(), lambda *_: None, cancelled)
    assert calls == 3
