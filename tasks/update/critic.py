"""The critic of PPO: a value model beside the policy, with its own optimizer.

It is a Hugging Face token classifier with one label; its body starts as a copy of the policy's, its head at 0. In a
checkpoint it lies in `critic/`, in the formats of the policy.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification, PreTrainedModel

from kernels_eval.errors import InputError
from tasks.models.policy import load_weights
from tasks.training.engine import EngineSettings, TrainingEngine, engine_settings
from tasks.training.scoring import hidden_states
from tasks.update.config import UpdateConfig

CRITIC_FOLDER = "critic"


def critic_settings(config: UpdateConfig, dtype: str) -> EngineSettings:
    """Return the settings of the critic's engine."""
    critic = config.critic
    return engine_settings(
        config, dtype, weight_decay=critic.weight_decay, gradient_clip=critic.gradient_clip, lora=None
    )


class ValueScorer(nn.Module):
    """A token classifier: micro-batch -> value [N] in float32 of the state before each trained token."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_ids: Tensor, positions: Tensor, targets: Tensor, **packing: Any) -> Tensor:
        """Take the tensors of a MicroBatch by their names there; the targets are ignored."""
        head: Any = self.model.score
        return head(hidden_states(self.model, token_ids, positions, packing)).squeeze(-1).float()


class CriticEngine(TrainingEngine):
    """A critic that is being trained; it scores values [N]."""

    def __init__(self, model: PreTrainedModel, settings: EngineSettings) -> None:
        super().__init__(model, ValueScorer(model), settings)


def load_critic(folder: Path | str, dtype: str) -> PreTrainedModel:
    """Load a critic, or make one from a policy: its body, a head of zeros. Raises InputError if there is neither."""
    expected = "a model that a critic can be made of"
    changes = {"num_labels": 1, "classifier_dropout": 0.0}
    model, missing = load_weights(AutoModelForTokenClassification, folder, dtype, expected, **changes)
    if not set(missing) <= {"score.weight", "score.bias"}:
        raise InputError(f"{folder}: weights of the critic's body are missing: {', '.join(missing[:3])}")
    if missing:
        with torch.no_grad():
            head: Any = model.score
            for parameter in head.parameters():
                parameter.zero_()
    return model
