"""A small policy, made once."""

from pathlib import Path
from typing import Any

import pytest

from tasks.models.config import ModelConfig


@pytest.fixture(scope="session")
def small_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tasks.models.tokenizer import train_tokenizer

    texts = [f"class Model:\n    x = {n}\n    y = torch.relu(x)\n```python\n```\n" for n in range(20)]
    return train_tokenizer(texts, 320, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def small_policy(small_tokenizer: Any) -> Any:
    """Random weights, scaled up so that its distributions are not flat."""
    import torch

    from tasks.models.policy import new_policy

    config = ModelConfig(vocabulary=320, layers=2, hidden=32, intermediate=64, heads=4, key_value_heads=2, head_dim=8)
    model = new_policy(config, small_tokenizer, seed=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return model


@pytest.fixture(scope="session")
def small_policy_folder(small_policy: Any, small_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tasks.models.policy import save_policy

    folder = tmp_path_factory.mktemp("policy")
    save_policy(small_policy, small_tokenizer, folder)
    return folder
