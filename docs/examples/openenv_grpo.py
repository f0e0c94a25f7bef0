"""GRPO with TRL's trainer on an OpenEnv environment: python docs/examples/openenv_grpo.py --policy FOLDER [--steps 20]

Needs the extras `openenv` and `trl`, and a server (docs/examples/openenv_server.py). The trainer knows nothing of
problems or of the judge: prompts are the observations after `reset`, rewards are those of `step`. `--policy` is a
Hugging Face folder whose tokenizer has a chat template.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from extras.adapters.openenv import KernelAction, KernelClient


class Sessions:
    """Sessions with the environment's server, each used by one episode at a time."""

    def __init__(self, url: str, count: int) -> None:
        self._clients = [KernelClient(base_url=url).sync().__enter__() for _ in range(count)]
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for client in self._clients:
            self._idle.put(client)
        self._threads = ThreadPoolExecutor(count)

    def close(self) -> None:
        """End the sessions."""
        self._threads.shutdown()
        for client in self._clients:
            client.__exit__(None, None, None)

    def first_observations(self, count: int) -> list[dict[str, Any]]:
        """Return rows of TRL: prompt and index of each of the first problems."""
        return list(self._threads.map(self._row, range(count)))

    def __call__(self, completions: list[Any], index: list[int], log_metric: Any, **_: Any) -> list[float | None]:
        """Return the reward of each answer, in an episode on its problem; None, which TRL masks, after a fault."""
        found = list(self._threads.map(self._step, index, (completion[0]["content"] for completion in completions)))
        judged = [result for result in found if result is not None]
        log_metric("kernel/faults", float(len(found) - len(judged)))
        log_metric("kernel/correct", sum(result.observation.correct for result in judged) / max(1, len(judged)))
        return [None if result is None else result.reward for result in found]

    def _row(self, index: int) -> dict[str, Any]:
        client = self._idle.get()
        try:
            return {"prompt": client.reset(split="train", index=index).observation.messages, "index": index}
        finally:
            self._idle.put(client)

    def _step(self, index: int, answer: str) -> Any:
        client = self._idle.get()
        try:
            client.reset(split="train", index=index)
            return client.step(KernelAction(answer=answer))
        except RuntimeError as error:  # of the server: the machine failed, which says nothing of the answer
            print(f"not judged: {error}", flush=True)
            return None
        finally:
            self._idle.put(client)


def main() -> None:
    """Train, and print one line a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--output", type=Path, default=Path("runs/openenv"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--problems", type=int, default=200, help="of the server's split `train`, from the first")
    parser.add_argument("--prompts-per-step", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8, help="answers to one prompt")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--tokens", type=int, default=160, help="longest answer")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not (options.policy / "config.json").exists():
        parser.error(f"--policy {options.policy}: expected a folder with a model (config.json), found none")

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
        seed=options.seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
    )
    sessions = Sessions(options.url, options.prompts_per_step)
    try:
        trainer = GRPOTrainer(
            model=str(options.policy),
            reward_funcs=sessions.__call__,
            args=config,
            train_dataset=Dataset.from_list(sessions.first_observations(options.problems)),
            callbacks=[StepLines()],
        )
        trainer.train()
    finally:
        sessions.close()
    trainer.save_model()


class StepLines(TrainerCallback):
    """Prints the reward and the environment's figures of each step, as JSON."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Print one line."""
        names = ("reward", "kernel/correct", "kernel/faults", "step_time")
        found = {name: round(float(logs[name]), 3) for name in names if logs and name in logs}
        if "reward" in found:
            print(json.dumps({"step": state.global_step, **found}), flush=True)


if __name__ == "__main__":
    main()
