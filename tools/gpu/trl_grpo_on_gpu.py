"""TRL's GRPO beside a finished run: same policy, GPU, judge, prompts and number of judged kernels; how far does it come?

    PYTHONPATH=. python tools/gpu/trl_grpo_on_gpu.py --run runs/latest --out FOLDER

Needs the extra `trl`. Starts from the run's SFT policy and trains on the run's own problems with TRL's loop and
transformers' generation. From the run's settings: prompts, reward, judge, problems and samples a step, optimizer steps
a step, learning rate with its schedule, optimizer, longest answer. TRL's own: one turn a conversation, GRPO's
advantages, DAPO's loss without a KL term, the order generate – judge – train with nothing at the same time.

It ends after the first step that reaches `--kernels` or `--seconds`, counted from the start of this process. The
learning rate's schedule is laid out for `--kernels`. Verdicts that the run kept are not read: every kernel is judged.

FOLDER gets steps.jsonl (a line a step), summary.json (with the time and the judged kernels of the run's own RL stages)
and `policy`. The last lines are the command of the held-out evaluation, which `--evaluate` runs, and then the figures of
all policies. The first turns (`first_correct`, `first_reward`) are the fair comparison: TRL's policy has learned from
first turns alone, while the run's conversations have several.
"""

import argparse
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import psutil
import pyarrow.parquet as pq
import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from extras.adapters.problem_rows import first_prompt
from extras.adapters.scoring import open_scorer
from extras.adapters.trl import RewardFunction, kernel_reward
from flows.run.state import RunState, read_state, reference_of
from flows.settings.configuration import RunConfig, load_configuration
from flows.sft_control import RL_STAGES
from kernels_eval.config import JudgeConfig
from tasks.models.chat import encode_prompt
from tasks.problems.problem_set import read_problems
from tasks.problems.row import Split
from tasks.rollout.prompts import prompt_messages

_STARTED = psutil.Process().create_time()
_LOGGED = {
    "reward": "reward", "correct": "kernel/correct", "compiled": "kernel/compiled", "speedup": "kernel/speedup",
    "equal_groups": "frac_reward_zero_std", "tokens": "completions/mean_length",
    "cut_off": "completions/clipped_ratio", "entropy": "entropy", "gradient_norm": "grad_norm",
    "learning_rate": "learning_rate",
}  # fmt: skip
"""Figures of a step's line, and their names in TRL's log."""
_FIGURES = ("first_correct", "first_reward", "best_correct", "correct", "fast_1", "mean_reward", "mean_turns")
"""Held-out figures that are printed (tasks.evaluation.per_problem)."""


def main() -> None:
    """Train, save the policy, and print or run its evaluation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder of a run that has an SFT policy")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kernels", type=int, help="judged kernels after which training ends; default: the run's RL")
    parser.add_argument("--seconds", type=float, default=400.0, help="wall time after which training ends")
    parser.add_argument("--judge-workers", type=int, help="default: the run's")
    parser.add_argument("--judge-memory-gb", type=float, help="device memory of the judge; default: the run's")
    parser.add_argument("--optimizer-steps", type=int, help="optimizer steps a step; default: the run's")
    parser.add_argument("--continuous-batching", action="store_true", help="transformers' engine for generation")
    parser.add_argument("--evaluate", action="store_true", help="run the held-out evaluation at the end")
    options = parser.parse_args()
    run_dir, out = options.run.resolve(), options.out.resolve()
    config, state = load_configuration(run_dir / "config.yaml"), read_state(run_dir)
    if state.problems is None or 0 not in state.policies:
        parser.error(f"--run {options.run}: expected a run with a problem set and an SFT policy")
    out.mkdir(parents=True, exist_ok=True)
    rows = problem_rows_of(config, state)
    sft = state.policies[0].path
    check_prompts(sft, rows, config)
    changes = {"workers": options.judge_workers, "device_memory_gb": options.judge_memory_gb}
    judge = config.judge.model_copy(update={name: value for name, value in changes.items() if value is not None})
    judge = JudgeConfig.model_validate(judge.model_dump())

    run_rl = figures_of_rl(state)
    kernels = options.kernels or run_rl["judged"]
    if not kernels:
        parser.error(f"--kernels: expected a number, since {options.run} has no RL stage to take it from")
    settings = trainer_settings(config, len(rows), kernels, options.optimizer_steps)
    arguments = GRPOConfig(
        output_dir=str(out / "trainer"), use_transformers_continuous_batching=options.continuous_batching, **settings
    )
    with open_scorer(None, judge, config.rollout.episode) as scorer:
        steps = Steps(out / "steps.jsonl", settings["steps_per_generation"], kernels, options.seconds)
        reward, data = steps.watched(kernel_reward(scorer)), Dataset.from_list(rows)
        trainer = TimedTrainer(str(sft), reward, args=arguments, train_dataset=data, callbacks=[steps])
        trainer.steps = steps
        trainer.remove_callback(PrinterCallback)  # its lines say the same
        steps.begin()
        trainer.train()
    policy = save_policy(trainer, sft, out / "policy")
    shutil.rmtree(out / "trainer", ignore_errors=True)
    summary = {
        "trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "problems": {"train": len(rows), "heldout": state.problems.heldout},
        "judge": judge.model_dump(include={"device", *changes}),
        "settings": settings, "continuous_batching": options.continuous_batching,
        "setup_s": round(steps.setup_s, 1), **steps.totals(), "run": run_rl,
    }  # fmt: skip
    (out / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    print(json.dumps(summary), flush=True)
    command = evaluation_command(run_dir, policy)
    print(f"evaluation on the run's {state.problems.heldout} held-out problems: {shlex.join(command)}", flush=True)
    if options.evaluate:
        root = Path(__file__).resolve().parents[2]
        path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        subprocess.run(command, check=True, cwd=root, env={**os.environ, "PYTHONPATH": path})
        print_evaluations(run_dir, state, policy)


def evaluation_command(run_dir: Path, policy: Path) -> list[str]:
    """Return the command that evaluates a policy on the run's held-out problems."""
    command = [sys.executable, "-m", "flows.cli.main", "evaluate", str(run_dir / "config.yaml")]
    return [*command, "--checkpoint", str(policy), "--set", f"runs_dir={run_dir.parent}"]


def problem_rows_of(config: RunConfig, state: RunState) -> list[dict[str, Any]]:
    """Return the run's training problems, with its first prompt, as rows of a data set."""
    assert state.problems is not None
    episode, backend = config.rollout.episode, config.judge.backend
    sources = [row.problem.source for row in read_problems(state.problems, Split.TRAIN)]
    return [{"prompt": first_prompt(source, episode, backend), "problem_source": source} for source in sources]


def check_prompts(policy: Path, rows: Sequence[dict[str, Any]], config: RunConfig) -> None:
    """Raise SystemExit unless the trainer's tokens of every prompt are those of the run's rollouts."""
    tokenizer, episode = AutoTokenizer.from_pretrained(str(policy)), config.rollout.episode
    for row in rows:
        messages = prompt_messages(row["problem_source"], [], episode, config.judge.backend)
        ours = encode_prompt(tokenizer, messages, thinking=episode.thinking)
        theirs = tokenizer.apply_chat_template(
            row["prompt"], add_generation_prompt=True, return_dict=True, **_template_arguments(config)
        )
        if ours != list(theirs["input_ids"]):
            raise SystemExit(f"prompt: expected the tokens of rollouts, found others for {row['problem_source']!r}")


def _template_arguments(config: RunConfig) -> dict[str, Any]:
    return {"enable_thinking": config.rollout.episode.thinking}


def trainer_settings(
    config: RunConfig, problems: int, kernels: int, optimizer_steps: int | None = None
) -> dict[str, Any]:
    """Return TRL's settings for the run's: one generation batch is a step of the comparison."""
    rollout, update = config.rollout, config.update
    samples = rollout.samples_per_problem
    batch = min(rollout.problems_per_iteration, problems) * samples
    wanted = optimizer_steps or update.optimizer_steps
    parts = max(number for number in range(1, wanted + 1) if batch % number == 0)
    cosine = {"min_lr_rate": update.final_learning_rate_fraction}
    return {
        "per_device_train_batch_size": batch // parts, "steps_per_generation": parts, "gradient_accumulation_steps": 1,
        "num_generations": samples, "max_steps": math.ceil(kernels / batch) * parts,
        "max_completion_length": rollout.sampling.max_new_tokens, "temperature": 1.0,
        "chat_template_kwargs": _template_arguments(config),
        "loss_type": "dapo", "epsilon": update.clip_low or 0.2, "epsilon_high": update.clip_high or 0.28, "beta": 0.0,
        "learning_rate": update.learning_rate, "warmup_steps": update.warmup_steps,
        "lr_scheduler_type": "cosine_with_min_lr" if update.schedule == "cosine" else "constant_with_warmup",
        "lr_scheduler_kwargs": cosine if update.schedule == "cosine" else {},
        "adam_beta1": update.betas[0], "adam_beta2": update.betas[1], "weight_decay": update.weight_decay,
        "max_grad_norm": update.gradient_clip, "gradient_checkpointing": update.activation_checkpointing,
        "model_init_kwargs": {"dtype": config.model.dtype}, "bf16": config.model.dtype == "bfloat16",
        "seed": config.seed, "logging_steps": parts, "save_strategy": "no", "report_to": "none", "disable_tqdm": True,
        "use_cpu": not torch.cuda.is_available(),
    }  # fmt: skip


class Steps(TrainerCallback):
    """Clock and counter of a training: ends it in time, and writes a line for each generation batch."""

    def __init__(self, path: Path, parts: int, kernels: int, seconds: float) -> None:
        """`parts`: optimizer steps to one generation batch."""
        self.setup_s = self._written_s = 0.0
        self.answering_s = self.judging_s = 0.0  # of the step under way; the first includes the second
        self.answers = self.faults = 0
        self.lines: list[dict[str, Any]] = []
        self._path, self._parts, self._kernels, self._seconds = path, parts, kernels, seconds
        path.unlink(missing_ok=True)

    def begin(self) -> None:
        """Take the time at which the first step begins."""
        self.setup_s = self._written_s = elapsed()

    def watched(self, reward: RewardFunction) -> RewardFunction:
        """Return the reward function with its time and its answers counted; None is a fault of the machine."""

        async def kernel(**columns: Any) -> list[float | None]:
            began = time.monotonic()
            rewards = await reward(**columns)
            self.judging_s += time.monotonic() - began
            self.answers += len(rewards)
            self.faults += rewards.count(None)
            return rewards

        return kernel

    @property
    def judged(self) -> int:
        """Answers with a verdict so far."""
        return self.answers - self.faults

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the training after a whole generation batch."""
        if state.global_step % self._parts == 0 and (self.judged >= self._kernels or elapsed() >= self._seconds):
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write the line of a step."""
        if not logs or "reward" not in logs:
            return
        wall = elapsed()
        step_s = wall - self._written_s
        line = {
            "step": state.global_step // self._parts, "wall_s": wall, "judged": self.judged, "faults": self.faults,
            **{name: logs.get(logged) for name, logged in _LOGGED.items()},
            "step_s": step_s, "generation_s": self.answering_s - self.judging_s, "judging_s": self.judging_s,
            "training_s": step_s - self.answering_s,
        }  # fmt: skip
        self._written_s, self.answering_s, self.judging_s = wall, 0.0, 0.0
        line = {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in line.items()}
        self.lines.append(line)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    def totals(self) -> dict[str, Any]:
        """Return the figures of the whole training so far."""
        seconds = {name: sum(line[name] for line in self.lines) for name in ("generation_s", "judging_s", "training_s")}
        wall = self.lines[-1]["wall_s"] if self.lines else 0.0
        counts = {"steps": len(self.lines), "judged": self.judged, "faults": self.faults}
        return {**counts, "wall_s": wall, **{name: round(value, 2) for name, value in seconds.items()}}


class TimedTrainer(GRPOTrainer):
    """GRPOTrainer that takes the time of generation and judging together."""

    steps: Steps

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        began = time.monotonic()
        found = super()._generate_and_score_completions(inputs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.steps.answering_s += time.monotonic() - began
        return found


def elapsed() -> float:
    """Return the seconds since this process started."""
    return time.time() - _STARTED


def save_policy(trainer: GRPOTrainer, sft: Path, folder: Path) -> Path:
    """Save model and tokenizer as a policy's folder, with the configuration and generation settings of the SFT policy."""
    shutil.rmtree(folder, ignore_errors=True)
    trainer.save_model(str(folder))
    (folder / "training_args.bin").unlink(missing_ok=True)
    for name in ("config.json", "generation_config.json"):  # the trainer turns the cache off in the first
        (folder / name).unlink(missing_ok=True)
        if (sft / name).exists():
            shutil.copy(sft / name, folder)
    return folder


def figures_of_rl(state: RunState) -> dict[str, Any]:
    """Return the time and the judged turns of the run's own RL stages."""
    stages = [timing for timing in state.timings.values() if timing.stage in RL_STAGES]
    turns = [pq.read_metadata(batch.path / "turns.parquet").num_rows for batch in state.batches.values()]
    seconds = sum(timing.seconds + timing.overhead_s for timing in stages)
    return {"iterations": len(turns), "judged": sum(turns), "seconds": round(seconds, 1)}


def print_evaluations(run_dir: Path, state: RunState, policy: Path) -> None:
    """Print the held-out figures of each of the run's policies and of TRL's, a JSON line each."""
    folders = {f"run@{version}": found.path for version, found in sorted(state.evaluations.items())}
    digest = reference_of(policy, "--out").digest
    stored = sorted((run_dir.parent / "store" / "evaluation").iterdir(), key=lambda each: each.stat().st_mtime)
    for folder in stored:  # the newest of this policy comes last
        file = folder / "evaluation.json"
        if file.exists() and json.loads(file.read_text(encoding="utf-8"))["policy_digest"] == digest:
            folders["trl"] = folder
    for name, folder in folders.items():
        figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["overall"]
        print(json.dumps({"policy": name, **{figure: figures.get(figure) for figure in _FIGURES}}), flush=True)


if __name__ == "__main__":
    main()
