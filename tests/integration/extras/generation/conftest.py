"""A policy of random weights."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[3])]  # service_process, imported


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tasks.models.config import ModelConfig
    from tasks.models.policy import new_policy, save_policy
    from tasks.models.tokenizer import train_tokenizer

    folder = tmp_path_factory.mktemp("policy")
    texts = [f"class Model:\n    x = {n}\n    y = torch.relu(x)\n```python\n```\n" for n in range(20)]
    tokenizer = train_tokenizer(texts, 320, folder)
    config = ModelConfig(
        vocabulary=320, layers=2, hidden=32, intermediate=64, heads=4, key_value_heads=2, head_dim=8, max_positions=4096
    )
    save_policy(new_policy(config, tokenizer, seed=3), tokenizer, folder)
    return folder
