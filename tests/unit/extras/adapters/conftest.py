"""A judge whose verdict a kernel names itself, and a policy that a peer can train in seconds."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InfrastructureError
from kernels_eval.problem import EXAMPLE_PROBLEM, Problem
from kernels_eval.verdict import Status, Verdict, fault


class NamedJudge:
    """Judges a kernel by what it says: `# speedup 1.5`, `# incorrect`, `# fault`, `# raises`, `# slow`."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.most_at_once = 0
        self._running = 0
        self.closed = False

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        self.judged.append(kernel_source)
        await asyncio.sleep(0.01)
        self._running -= 1
        if "# fault" in kernel_source:
            return fault("judge_fault", "lost worker")
        if "# raises" in kernel_source:
            raise InfrastructureError("no server")
        if "# slow" in kernel_source:
            await asyncio.sleep(60)
        found = re.search(r"# speedup ([\d.]+)", kernel_source)
        if found is None:
            return Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message="0 ≠ 1")
        return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=float(found[1]))

    def close(self) -> None:
        self.closed = True


def answered(remark: str) -> str:
    """Return an answer with a kernel that says what its verdict is."""
    return f"Here it is.\n```python\n# {remark}\nclass ModelNew: ...\n```\n"


@pytest.fixture
def judge() -> NamedJudge:
    return NamedJudge()


@pytest.fixture
def answer() -> Any:
    return answered


@pytest.fixture
def problem_source() -> str:
    return EXAMPLE_PROBLEM


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights with its tokenizer, in a Hugging Face folder."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tasks.models.config import ModelConfig
    from tasks.models.policy import new_policy, save_policy
    from tasks.models.tokenizer import train_tokenizer

    folder = tmp_path_factory.mktemp("policy")
    texts = [f"class Model:\n    x = {n}\n    y = torch.relu(x)\n```python\n```\n" for n in range(20)]
    tokenizer = train_tokenizer(texts, 320, folder)
    config = ModelConfig(vocabulary=320, layers=2, hidden=32, intermediate=64, heads=4, key_value_heads=2, head_dim=8)
    save_policy(new_policy(config, tokenizer, seed=3), tokenizer, folder)
    return folder
