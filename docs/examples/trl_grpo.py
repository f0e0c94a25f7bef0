"""GRPO with TRL's trainer on the judge's verdicts: python docs/examples/trl_grpo.py --policy FOLDER [--steps 20]

Needs the extra `trl`. `--policy` is a Hugging Face folder whose tokenizer has a chat template. With --judge-url the
kernels are judged by a server (`kernelmill serve judge`), otherwise beside the trainer.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from extras.adapters.problem_rows import problem_rows
from extras.adapters.scoring import open_scorer
from extras.adapters.trl import kernel_reward
from kernels_eval.config import JudgeConfig
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import EpisodeConfig


def main() -> None:
    """Train, and print one line a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("runs/trl"))
    parser.add_argument("--judge-url")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--prompts-per-step", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8, help="answers to one prompt")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--tokens", type=int, default=160, help="longest answer")
    parser.add_argument("--prompt", choices=["source", "instruct"], default="source")
    options = parser.parse_args()
    if not (options.policy / "config.json").exists():
        parser.error(f"--policy {options.policy}: expected a folder with a model (config.json), found none")

    episode = EpisodeConfig(prompt=options.prompt, feedback="brief", reward="kernelbench")
    rows = problem_rows(ProblemsConfig(train=options.problems), episode)
    config = GRPOConfig(
        output_dir=str(options.output),
        max_steps=options.steps,
        per_device_train_batch_size=options.prompts_per_step * options.samples,
        num_generations=options.samples,
        max_completion_length=options.tokens,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant",
        loss_type="dapo",
        beta=0.0,
        seed=0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
    )
    with open_scorer(options.judge_url, JudgeConfig(workers=2), episode) as scorer:
        trainer = GRPOTrainer(
            model=str(options.policy),
            reward_funcs=kernel_reward(scorer),
            args=config,
            train_dataset=Dataset.from_list(rows),
            callbacks=[StepLines()],
        )
        trainer.train()
    trainer.save_model()


class StepLines(TrainerCallback):
    """Prints the reward and the judge's figures of each step, as JSON."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Print one line."""
        names = ("reward", "kernel/correct", "kernel/compiled", "kernel/speedup", "kernel/faults", "step_time")
        found = {name: round(float(logs[name]), 3) for name in names if logs and name in logs}
        if "reward" in found:
            print(json.dumps({"step": state.global_step, **found}), flush=True)


if __name__ == "__main__":
    main()
