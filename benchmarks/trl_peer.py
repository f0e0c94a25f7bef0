"""TRL's GRPOTrainer on a recorded batch: its own loop, loss, head and optimizer; only generation is replaced.

Padding is TRL's: prompts on the left, responses on the right, to the longest of the generation batch, which is cut
into micro-batches of `rows` sequences. One generation batch is one optimizer step.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from benchmarks.recorded_batch import RecordedBatch

CLIP = 1.0
"""Gradient norm above which gradients are scaled down."""


@dataclass
class PeerStep:
    """Measurements of one optimizer step of the peer."""

    loss: float = 0.0
    gradient_norm: float = 0.0
    """As TRL logs it: summed in float32, which loses the fifth digit over millions of squares."""
    exact_gradient_norm: float = 0.0
    """Of the same gradients, summed in float64; of the first step only, whose time and memory do not count."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Processor time of all threads, which a busy machine changes least."""


class Clock(TrainerCallback):
    """Measures whole optimizer steps: appends each to `taken`, after a call of `before_step`."""

    def __init__(self, taken: list[PeerStep], before_step: Callable[[], None]) -> None:
        self._taken = taken
        self._before_step = before_step
        self._started, self._started_cpu = 0.0, 0.0

    def on_step_begin(self, *arguments: Any, **options: Any) -> None:
        self._before_step()
        self._taken.append(PeerStep())
        _wait()
        self._started, self._started_cpu = time.perf_counter(), time.process_time()

    def on_pre_optimizer_step(self, *arguments: Any, **options: Any) -> None:
        if len(self._taken) == 1:  # after clipping, which is undone once its norm is known
            squares = [p.grad.double().pow(2).sum() for p in options["model"].parameters() if p.grad is not None]
            self._taken[-1].exact_gradient_norm = float(torch.stack(squares).sum().sqrt())

    def on_step_end(self, *arguments: Any, **options: Any) -> None:
        _wait()
        self._taken[-1].seconds = time.perf_counter() - self._started
        self._taken[-1].cpu_seconds = time.process_time() - self._started_cpu

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **options: Any) -> None:
        if logs and "grad_norm" in logs:
            step = self._taken[-1]
            step.gradient_norm = float(logs["grad_norm"])
            step.exact_gradient_norm /= min(1.0, CLIP / (step.gradient_norm + 1e-6))


def run_trl(
    model: Any,
    tokenizer: Any,
    batch: RecordedBatch,
    rows: int,
    steps: int,
    learning_rate: float = 1e-6,
    before_step: Callable[[], None] = lambda: None,
    old_log_probs: Sequence[Sequence[float]] | None = None,
    **settings: Any,
) -> list[PeerStep]:
    """Train `model` for some optimizer steps on the same batch. `settings` go to TRL's GRPOConfig.

    `old_log_probs`: of each response's tokens, the denominators of ratios; None: the policy's own at each step.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    size = len(batch.prompts)
    assert size % rows == 0, f"{size} sequences are no multiple of {rows}"
    taken: list[PeerStep] = []

    class Recorded(GRPOTrainer):
        """Hands out the recorded batch instead of generating, and adds up its loss."""

        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Tensor]:
            return padded_tensors(batch, tokenizer.pad_token_id or 0, self.accelerator.device, old_log_probs)

        def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
            loss = super()._compute_loss(model, inputs)
            taken[-1].loss += float(loss.detach())
            return loss

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=size // rows,
            steps_per_generation=size // rows,
            num_generations=size // len(set(batch.groups)),
            max_steps=steps,
            loss_type="dapo",
            epsilon=0.2,
            epsilon_high=0.28,
            beta=0.0,
            learning_rate=learning_rate,
            lr_scheduler_type="constant",
            max_grad_norm=CLIP,
            adam_beta1=0.9,
            adam_beta2=0.95,
            weight_decay=0.0,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            **settings,
        )
        Recorded(
            model=model,
            reward_funcs=lambda completions, **columns: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_list([{"prompt": "x"}] * size),
            processing_class=tokenizer,
            callbacks=[Clock(taken, before_step)],
        ).train()
    return taken


def padded_tensors(
    batch: RecordedBatch, pad: int, device: torch.device, old_log_probs: Sequence[Sequence[float]] | None = None
) -> dict[str, Tensor]:
    """Return the batch as GRPOTrainer's own generation returns it."""
    prompt_width, response_width = max(map(len, batch.prompts)), max(map(len, batch.responses))
    prompts = [[pad] * (prompt_width - len(row)) + row for row in batch.prompts]
    prompt_mask = [[0] * (prompt_width - len(row)) + [1] * len(row) for row in batch.prompts]
    responses = [row + [pad] * (response_width - len(row)) for row in batch.responses]
    response_mask = [[1] * len(row) + [0] * (response_width - len(row)) for row in batch.responses]
    old = [[*row, *[0.0] * (response_width - len(row))] for row in old_log_probs or []]
    return {
        **({"old_per_token_logps": torch.tensor(old, device=device)} if old else {}),
        "prompt_ids": torch.tensor(prompts, device=device),
        "prompt_mask": torch.tensor(prompt_mask, device=device),
        "completion_ids": torch.tensor(responses, device=device),
        "completion_mask": torch.tensor(response_mask, device=device),
        "advantages": torch.tensor(batch.advantages, device=device),
        "num_items_in_batch": torch.tensor(float(batch.response_tokens), device=device),
    }


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
