"""The loop in one file: its parts compute what they say, and a tiny run goes through SFT, judge and GRPO."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

PATH = Path(__file__).parents[3] / "docs" / "examples" / "teaching_loop.py"


@pytest.fixture(scope="module")
def loop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("teaching_loop", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["teaching_loop"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_advantages_are_relative_to_the_group_and_zero_where_all_are_equal(loop: ModuleType):
    found = loop.group_advantages(torch.tensor([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]))
    torch.testing.assert_close(found, torch.tensor([[-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), atol=1e-4, rtol=0)


def test_the_gradient_raises_better_answers_and_ignores_what_is_no_answer(loop: ModuleType):
    new = torch.zeros(2, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    loop.grpo_loss(new, torch.zeros(2, 3), torch.tensor([1.0, -1.0]), mask).backward()
    assert new.grad is not None
    torch.testing.assert_close(-new.grad, torch.tensor([[1.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]) / 3)


def test_a_ratio_beyond_the_clip_has_no_gradient(loop: ModuleType):
    new = torch.tensor([[0.5], [-0.5]], requires_grad=True)  # ratios 1.65 and 0.61
    mask = torch.ones(2, 1, dtype=torch.bool)
    loop.grpo_loss(new, torch.zeros(2, 1), torch.tensor([1.0, -1.0]), mask).backward()
    assert new.grad is not None
    assert not new.grad.any()


def test_the_mask_covers_the_answer_alone(loop: ModuleType):
    tokens, is_answer = loop.batch([([7, 1], [3, 9, 2]), ([7, 8, 1], [4])])
    assert tokens.shape == is_answer.shape == (2, loop.LONGEST)
    assert tokens[0][is_answer[0]].tolist() == [3, 9, 2]
    assert tokens[1][is_answer[1]].tolist() == [4]


def test_an_answer_without_a_style_is_no_kernel(loop: ModuleType):
    assert loop.kernel_source(["relu", "<end>"]) == ""
    assert loop.kernel_source([]) == ""


def test_a_tiny_run_learns_to_write_kernels(loop: ModuleType, capsys: pytest.CaptureFixture[str]):
    sizes = loop.Sizes(sft_steps=60, iterations=1, problems=2, samples=3, heldout=2, workers=1)
    found = loop.run(sizes)
    said = capsys.readouterr().out
    assert "iteration 0: mean reward" in said
    assert set(found) == {"before", "after"}
    reward, correct = found["before"]
    assert correct > 0
    assert reward > 0.1  # more than a kernel that only compiles
