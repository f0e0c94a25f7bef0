"""TRL's own trainer on our reward and our environment: two steps of a tiny model, and what a fault does to advantages."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

trl = pytest.importorskip("trl", reason="TRL is not installed (extra `trl`)")

from datasets import Dataset  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from extras.adapters.problem_rows import first_prompt  # noqa: E402
from extras.adapters.scoring import Scorer  # noqa: E402
from extras.adapters.trl import KernelEnvironment, environment_factory, kernel_reward  # noqa: E402
from kernels_eval.errors import InputError  # noqa: E402
from tasks.rollout.config import EpisodeConfig  # noqa: E402

EPISODE = EpisodeConfig(prompt="source", feedback="brief")


def trainer_on(policy_folder: Path, tmp_path: Path, problem_source: str, **arguments: Any) -> Any:
    settings = arguments.pop("settings", {})
    tokenizer = arguments.pop("tokenizer", None) or AutoTokenizer.from_pretrained(policy_folder)
    row = {
        "prompt": first_prompt(problem_source, EPISODE),
        "problem_source": problem_source,
        "problem_id": "p",
        "level": 1,
    }
    config = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=4, num_generations=4, logging_steps=1,
        report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True, learning_rate=1e-4,
        **{"max_steps": 2, "max_completion_length": 16, **settings},
    )  # fmt: skip
    return trl.GRPOTrainer(
        model=str(policy_folder), args=config, train_dataset=Dataset.from_list([row] * 8), processing_class=tokenizer, **arguments
    )  # fmt: skip


def scripted(trainer: Any, *rounds: list[str]) -> None:
    """Let the trainer 'generate' these answers: one list a call, the last one for ever."""
    tokenizer, calls = trainer.processing_class, iter(range(1000))

    def generate(prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        answers = rounds[min(next(calls), len(rounds) - 1)]
        ids = [tokenizer(text + "<|im_end|>", add_special_tokens=False)["input_ids"] for text in answers]
        return (ids * len(prompt_ids))[: len(prompt_ids)], None

    trainer._generate_single_turn = generate


def test_two_steps_of_a_random_model(policy_folder: Path, tmp_path: Path, problem_source: str, judge: Any):
    with Scorer(judge, EPISODE) as scorer:
        trainer = trainer_on(policy_folder, tmp_path, problem_source, reward_funcs=kernel_reward(scorer))
        trainer.train()
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["rewards/kernel/mean"] for entry in steps] == [0, 0]
    assert steps[0]["kernel/faults"] == 0


def test_a_fault_moves_neither_the_policy_nor_the_baseline(
    policy_folder: Path, tmp_path: Path, problem_source: str, judge: Any, answer: Any
):
    answers = [answer("speedup 2"), answer("fault"), answer("incorrect"), answer("fault")]
    settings = {"max_completion_length": 400, "scale_rewards": "none"}
    with Scorer(judge, EPISODE) as scorer:
        trainer = trainer_on(
            policy_folder, tmp_path, problem_source, reward_funcs=kernel_reward(scorer), settings=settings
        )
        scripted(trainer, answers)
        trainer.train()
    good, bad = 1.3, 0.1
    mean = (good + bad) / 2
    assert list(trainer._logs["advantages"])[:4] == pytest.approx([good - mean, 0, bad - mean, 0], abs=1e-5)
    rewards = list(trainer._logs["rewards"]["kernel"])[:4]
    assert [math.isnan(reward) for reward in rewards] == [False, True, False, True]
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    assert entry["reward"] == pytest.approx(mean)
    assert (entry["kernel/faults"], entry["kernel/correct"], entry["kernel/speedup"]) == (2, 0.5, 2)


def test_a_conversation_in_its_environment(policy_folder: Path, tmp_path: Path, problem_source: str, judge: Any):
    def call(remark: str) -> str:
        arguments = {"source": f"# {remark}\nclass ModelNew: ...\n"}
        return f"<tool_call>\n{json.dumps({'name': 'judge_kernel', 'arguments': arguments})}\n</tool_call>"

    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    with Scorer(judge, EPISODE) as scorer:
        trainer = trainer_on(
            policy_folder, tmp_path, problem_source, tokenizer=tokenizer,
            environment_factory=environment_factory(scorer), settings={"max_completion_length": 1500, "max_steps": 1},
        )  # fmt: skip
        # First all are wrong; then each sample goes another way; the last answer calls nothing.
        second = [call("speedup 2"), call("fault"), call("incorrect"), "I give up."]
        scripted(trainer, [call("incorrect")] * 4, second, ["Done."] * 4)
        trainer.train()
    rewards = list(trainer._logs["rewards"]["KernelEnvironment"])[:4]
    assert rewards[0] == pytest.approx(1.3)
    assert math.isnan(rewards[1])
    assert rewards[2:] == pytest.approx([0.1, 0.1])
    assert list(trainer._logs["advantages"])[1] == 0
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    assert entry["tools/failure_frequency"] == 0
    told = str(trainer._logs["completion"][0])
    assert "wrong_values" in told


def test_the_environments_tool_says_when_it_is_over(judge: Any, problem_source: str):
    with Scorer(judge, EPISODE) as scorer:
        environment = KernelEnvironment(scorer)
        environment.reset(problem_source, prompt="ignored")
        assert environment.get_reward() == 0
        assert "correct" in environment.judge_kernel("# speedup 3\nclass ModelNew: ...")
        assert environment.judge_kernel("# speedup 9\nclass ModelNew: ...") == "No more kernels are judged: success."
        assert environment.get_reward() == pytest.approx(2.3)
    with (
        Scorer(judge, EpisodeConfig(reward="kernelbench - 0.1*length")) as scorer,
        pytest.raises(InputError, match="length"),
    ):
        environment_factory(scorer)
