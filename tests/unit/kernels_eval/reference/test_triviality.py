"""Tasks that need no computation are found, others are not."""

import pytest

from kernels_eval.reference.triviality import TrivialAnswer, check_suitability, trivial_answers


def task(forward: str, inputs: str = "torch.rand(128, 16)", layer: str = "nn.Identity()") -> str:
    return (
        "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        self.layer = {layer}\n    def forward(self, x):\n"
        f"        {forward}\ndef get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )


TRIVIAL = {
    "zeros": (task("return x * 0.0"), {TrivialAnswer.ZEROS, TrivialAnswer.MEAN, TrivialAnswer.STALE}),
    "a constant": (task("return torch.full_like(x, 3.5)"), {TrivialAnswer.MEAN, TrivialAnswer.STALE}),
    "saturated": (task("return torch.sigmoid(x + 50.0)"), {TrivialAnswer.MEAN, TrivialAnswer.STALE}),
    "identity": (task("return x.clamp(-1e9, 1e9)"), {TrivialAnswer.INPUT}),
    "softmax of one": (task("return torch.softmax(x[:, :1], dim=1)"), {TrivialAnswer.MEAN, TrivialAnswer.STALE}),
    "an index": (task("return torch.arange(16).expand(x.shape[0], 16) * 1"), {TrivialAnswer.STALE}),
}


@pytest.mark.parametrize("name", TRIVIAL)
def test_trivial_tasks_are_flagged(name: str) -> None:
    source, expected = TRIVIAL[name]
    assert set(trivial_answers(source)) == expected


OTHERS = {
    "affine": task("return torch.relu(x) * 2.0 + 1.0", "torch.rand(1024, 96)"),
    "softmax of a row": task("return torch.softmax(torch.relu(x) * 2.0 + 1.0, dim=1)", "torch.rand(1024, 100)"),
    "tiny": task("return x * 1e-6", "torch.rand(512, 64)"),
    "rows without their mean": task("return x - x.mean(dim=1, keepdim=True)", "torch.rand(512, 64)"),
    "mean": task("return torch.tanh(x).mean()", "torch.randn(256, 64)"),
    "linear": task("return torch.relu(self.layer(x))", "torch.randn(512, 64)", "nn.Linear(64, 48)"),
    "positive": task("return x > 0.25", "torch.randn(512, 64)"),
    "argmax": task("return torch.argmax(x, dim=1)", "torch.randn(512, 100)"),
    "embedding": task("return self.layer(x)", "torch.randint(0, 50, (256,))", "nn.Embedding(50, 64)"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not(name: str) -> None:
    assert trivial_answers(OTHERS[name]) == []


def test_relu_of_positive_numbers_is_not_trivial_to_a_judge_that_draws_negative_ones() -> None:
    assert trivial_answers(task("return torch.relu(x)")) == []


@pytest.mark.long
def test_many_in_a_process_of_their_own_that_survives_bad_ones() -> None:
    hanging = task("return x").replace("import torch\n", "import time\ntime.sleep(600)\n", 1)
    ending = "import os\nos._exit(1)\n"
    chatty = "print('[1]')\n" + TRIVIAL["zeros"][0]
    sources = [chatty, task("raise ValueError"), ending, hanging, TRIVIAL["identity"][0]]
    found = check_suitability(sources, per_problem_s=3.0)
    assert [set(problem.trivial) for problem in found] == [
        TRIVIAL["zeros"][1],
        set(),
        set(),
        set(),
        TRIVIAL["identity"][1],
    ]


@pytest.mark.long
def test_random_references_are_named_with_the_reason() -> None:
    told: list[tuple[int, int]] = []
    sources = [task("return nn.functional.dropout(x)"), OTHERS["mean"]]
    random, right = check_suitability(sources, progress=lambda done, of_all: told.append((done, of_all)))
    assert told == sorted(told)
    assert told[-1] == (2, 2)
    assert random.random is not None
    assert random.random.startswith("the reference is random: its outputs differ between two runs on the same inputs")
    assert right.random is None
