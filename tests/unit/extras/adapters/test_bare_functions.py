"""verl, OpenRLHF and slime call bare functions: their conventions, and an error rather than a zero for a fault."""

import asyncio
import importlib.util
import inspect
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extras.adapters import openrlhf, scoring, slime, verl
from extras.adapters.scoring import Scorer
from kernels_eval.errors import InfrastructureError
from tasks.rollout.config import EpisodeConfig

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"
EPISODE = EpisodeConfig(prompt="source", feedback="brief", max_turns=3)
CHATML = "<|im_start|>user\nproblem<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(autouse=True)
def scorer(monkeypatch: pytest.MonkeyPatch, judge: Any) -> Any:
    found = Scorer(judge, EPISODE)
    for module in (scoring, openrlhf, slime, verl):
        monkeypatch.setattr(module, "shared_scorer", lambda: found)
    yield found
    found.close()


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_verl_scores_by_name_of_its_arguments(problem_source: str, answer: Any):
    arguments = {"data_source": "kernelmill", "ground_truth": problem_source, "extra_info": {"num_turns": 1}}
    found = asyncio.run(verl.compute_score(solution_str=answer("speedup 2"), **arguments))
    assert found == {"score": pytest.approx(1.3), "correct": 1, "compiled": 1, "speedup": 2}
    assert asyncio.run(verl.compute_score(solution_str="nothing", **arguments)).keys() == found.keys()
    with pytest.raises(InfrastructureError, match="lost worker"):
        asyncio.run(verl.compute_score(solution_str=answer("fault"), **arguments))
    (row,) = verl.verl_rows([{"prompt": [], "problem_id": "p", "problem_source": "s", "level": 2}])
    assert row["reward_model"]["ground_truth"] == "s"


def test_verls_own_reward_loop(problem_source: str, answer: Any, policy_folder: Path):
    pytest.importorskip("verl", reason="verl is not installed")
    pytest.importorskip("tensordict", reason="verl is not installed with its dependencies")
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {"path": "pkg://extras.adapters.verl", "name": "compute_score", "reward_kwargs": {}}
    config = OmegaConf.create({"reward": {"custom_reward_function": function}})
    tokenizer = AutoTokenizer.from_pretrained(policy_folder)

    async def run(text: str) -> dict[str, Any]:
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        (row,) = verl.verl_rows([{"prompt": [], "problem_id": "p", "problem_source": problem_source, "level": 1}])
        columns = {name: np.array([value], dtype=object) for name, value in row.items() if name != "prompt"}
        data = DataProto.from_dict(
            tensors={"responses": ids, "attention_mask": torch.ones_like(ids)}, non_tensors=columns
        )
        return await NaiveRewardManager(config, tokenizer, get_custom_reward_fn(config)).run_single(data)

    found = asyncio.run(run(answer("speedup 2")))
    assert found["reward_score"] == pytest.approx(1.3)
    assert found["reward_extra_info"]["correct"] == 1
    with pytest.raises(InfrastructureError):
        asyncio.run(run(answer("fault")))


def test_verls_agent_loop(problem_source: str, answer: Any, policy_folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("verl", reason="verl is not installed")
    pytest.importorskip("tensordict", reason="verl is not installed with its dependencies")
    from transformers import AutoTokenizer
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    from extras.adapters import verl_agent

    monkeypatch.setattr(verl_agent, "shared_scorer", verl.shared_scorer)
    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    answers = [answer("incorrect"), answer("speedup 2.5")]
    asked: list[list[int]] = []

    class Server:
        async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: Any) -> Any:
            asked.append(list(prompt_ids))
            ids = tokenizer(answers[len(asked) - 1] + "<|im_end|>", add_special_tokens=False)["input_ids"]
            return SimpleNamespace(token_ids=ids, log_probs=[-1.0] * len(ids))

    async def run(limit: int = 4000) -> Any:
        rollout = SimpleNamespace(prompt_length=2000, response_length=limit)
        wrapped = SimpleNamespace(config=SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout)))
        loop: AgentLoopBase = verl_agent.KernelAgentLoop(
            wrapped, Server(), tokenizer, None, None, SimpleNamespace(config={})
        )
        (row,) = verl.verl_rows([{"prompt": [], "problem_id": "p", "problem_source": problem_source, "level": 1}])
        return await loop.run({}, extra_info=row["extra_info"])

    output = asyncio.run(run())
    assert output.reward_score == pytest.approx(1.8)
    assert output.extra_fields["turn_scores"] == pytest.approx([0.1, 1.8])
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    own = tokenizer.decode(
        [token for token, is_own in zip(output.response_ids, output.response_mask, strict=True) if is_own]
    )
    assert own == "".join(text + "<|im_end|>" for text in answers)
    assert output.prompt_ids == asked[0]
    assert asked[1][: len(asked[0])] == asked[0]
    assert "wrong_values" in tokenizer.decode(asked[1])
    asked.clear()
    answers[1] = answer("fault")
    with pytest.raises(InfrastructureError, match="lost worker"):
        asyncio.run(run())


def test_openrlhf_rewards_what_follows_the_prompt(problem_source: str, answer: Any):
    reward_func = loaded(EXAMPLES / "openrlhf_reward.py").reward_func
    queries = [CHATML + answer(remark).rstrip() + "<|im_end|>" for remark in ("speedup 2", "incorrect")]
    found = reward_func(queries, [CHATML] * 2, [problem_source] * 2)
    assert found["rewards"].tolist() == pytest.approx([1.3, 0.1])
    assert found["extra_logs"]["correct"].tolist() == [1, 0]
    with pytest.raises(InfrastructureError, match="lost worker"):
        reward_func([CHATML + answer("fault")], [CHATML], [problem_source])


def test_openrlhfs_steps_add_up_to_the_best_turn(problem_source: str, answer: Any):
    async def run(*remarks: str) -> list[dict[str, Any]]:
        steps = openrlhf.KernelSteps()
        seen = (await steps.reset({"observation": CHATML, "label": problem_source}))["observation"]
        found = []
        for remark in remarks:
            action = answer(remark) + "<|im_end|>"
            found.append(await steps.step({"observation_text": seen, "action_text": action, "label": problem_source}))
            seen += action + found[-1]["environment_feedback"]
        return found

    found = asyncio.run(run("speedup 1.2", "incorrect", "speedup 1.5"))
    assert sum(step["rewards"].item() for step in found) == pytest.approx(0.8)
    assert [step["done"] for step in found] == [False, False, True]
    assert (
        found[1]["environment_feedback"]
        == "\n<|im_start|>user\nincorrect\nwrong_values<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(InfrastructureError, match="lost worker"):
        asyncio.run(run("speedup 1.2", "fault"))


def test_openrlhfs_own_executors(problem_source: str, answer: Any, policy_folder: Path):
    pytest.importorskip("openrlhf.utils.agent", reason="OpenRLHF is not installed")
    from openrlhf.utils.agent import SingleTurnAgentExecutor
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    answers = iter([answer("incorrect"), answer("speedup 2.5"), answer("speedup 2")])

    class Engine:
        async def generate(self, prompt_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
            text = next(answers) + "<|im_end|>"
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            return SimpleNamespace(
                outputs=[SimpleNamespace(token_ids=ids, text=text, finish_reason="stop", logprobs=None)]
            )

    def arguments() -> dict[str, Any]:
        sampling = SimpleNamespace(max_tokens=1500, logprobs=None)
        return {"prompt": CHATML, "label": problem_source, "sampling_params": sampling, "max_length": 4000,
                "hf_tokenizer": tokenizer, "llm_engine": Engine()}  # fmt: skip

    several = asyncio.run(loaded(EXAMPLES / "openrlhf_agent.py").AgentExecutor().execute(**arguments()))
    assert several["reward"] == pytest.approx(1.8)
    assert len(several["action_ranges"]) == 2
    start, end = several["action_ranges"][1]
    assert "speedup 2.5" in tokenizer.decode(several["observation_tokens"][start:end])
    single = asyncio.run(SingleTurnAgentExecutor(str(EXAMPLES / "openrlhf_reward.py")).execute(**arguments()))
    assert float(single["reward"]) == pytest.approx(1.3)


@pytest.mark.parametrize(
    ("prompt", "action", "expected"),
    [
        (CHATML, "x", "<|im_end|>\n<|im_start|>user\nm<|im_end|>\n<|im_start|>assistant\n"),
        ("<|start_header_id|>user", "x<|eot_id|>",
         "<|start_header_id|>user<|end_header_id|>\n\nm<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
    ],
)  # fmt: skip
def test_a_message_is_written_as_the_prompt_writes_them(prompt: str, action: str, expected: str):
    assert openrlhf.turn_text(prompt, action, "m") == expected
    with pytest.raises(ValueError, match="ChatML"):
        openrlhf.turn_text("User: ", action, "m")


def sample(problem_source: str, text: str) -> SimpleNamespace:
    return SimpleNamespace(label=problem_source, response=text, response_length=7, metadata={}, prompt="p")


def test_slimes_reward_of_one_and_of_many(problem_source: str, answer: Any):
    args = SimpleNamespace(dynamic_sampling_filter_path=None)
    one = sample(problem_source, answer("speedup 2"))
    assert asyncio.run(slime.kernel_reward(args, one)) == pytest.approx(1.3)
    assert one.metadata["kernelmill"]["correct"] == 1
    many = [one, sample(problem_source, answer("incorrect"))]
    assert asyncio.run(slime.kernel_reward(args, many)) == pytest.approx([1.3, 0.1])
    assert slime.keep_judged(args, many)
    assert inspect.iscoroutinefunction(slime.kernel_reward)


def test_a_fault_drops_slimes_group_or_raises(problem_source: str, answer: Any):
    group = [sample(problem_source, answer("speedup 2")), sample(problem_source, answer("fault"))]
    with pytest.raises(InfrastructureError, match="lost worker"):
        asyncio.run(slime.kernel_reward(SimpleNamespace(), group))
    args = SimpleNamespace(dynamic_sampling_filter_path=slime.FILTER)
    rewards = asyncio.run(slime.kernel_reward(args, group))
    assert math.isnan(rewards[1])
    assert not slime.keep_judged(args, group)
    assert not slime.keep_judged(args, [[group[0]], [group[1]]])
    module, _, name = slime.FILTER.rpartition(".")
    assert getattr(importlib.import_module(module), name) is slime.keep_judged
