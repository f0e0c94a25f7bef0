"""The chunked head equals the plain one, values and gradients, however wide its slices; its Triton kernels equal its PyTorch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.training.scoring import LOGITS_BYTES, ScoringHead, chunked_token_scores, token_scores

Results = tuple[torch.Tensor, ...]


def scores_and_gradients(function: str, rows: int, hidden: int, vocabulary: int, columns: int, biased: bool) -> Results:
    torch.manual_seed(rows * 1000 + vocabulary)
    states = torch.randn(rows, hidden, requires_grad=True)
    weight = torch.randn(vocabulary, hidden, requires_grad=True)
    bias = torch.randn(vocabulary, requires_grad=True) if biased else None
    targets = torch.randint(0, vocabulary, (rows,))
    of_log_probs, of_entropies = torch.randn(2, rows)
    if function == "chunked":
        log_probs, entropies = chunked_token_scores(states, weight, targets, bias, columns)
    else:
        log_probs, entropies = token_scores(torch.nn.functional.linear(states, weight, bias), targets)
    ((log_probs * of_log_probs).sum() + (entropies * of_entropies).sum()).backward()
    assert states.grad is not None
    assert weight.grad is not None
    gradients = [states.grad, weight.grad, *([] if bias is None else [bias.grad])]
    return (log_probs.detach(), entropies.detach(), *gradients)  # pyright: ignore[reportReturnType]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 12),
    hidden=st.integers(1, 9),
    vocabulary=st.integers(2, 70),
    columns=st.integers(1, 80),
    biased=st.booleans(),
)
def test_slices_change_nothing(rows: int, hidden: int, vocabulary: int, columns: int, biased: bool) -> None:
    plain = scores_and_gradients("plain", rows, hidden, vocabulary, columns, biased)
    chunked = scores_and_gradients("chunked", rows, hidden, vocabulary, columns, biased)
    for ours, expected in zip(chunked, plain, strict=True):
        assert float((ours - expected).abs().max()) <= 1e-6 * max(float(expected.abs().max()), 1.0)


def test_entropies_that_no_loss_uses_leave_the_gradient_as_it_is_to_the_bit() -> None:
    torch.manual_seed(0)
    logits, targets, of_log_probs = torch.randn(9, 70), torch.randint(0, 70, (9,)), torch.randn(9)
    gradients: list[torch.Tensor] = []
    for of_entropies in (None, torch.zeros(9), torch.full((9,), 1e-30)):  # the last one is too small to change anything
        given = logits.clone().requires_grad_()
        scores = token_scores(given, targets)
        torch.autograd.backward(
            [scores[0]] if of_entropies is None else [*scores],
            [of_log_probs] if of_entropies is None else [of_log_probs, of_entropies],
        )
        assert given.grad is not None
        gradients.append(given.grad)
    assert all(torch.equal(gradients[0], gradient) for gradient in gradients)


def test_very_likely_and_very_unlikely_tokens_stay_finite() -> None:
    states = torch.tensor([[80.0], [-80.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    log_probs, entropies = chunked_token_scores(states, weight, torch.tensor([0, 0]), columns=1)
    (log_probs.sum() + entropies.sum()).backward()
    assert log_probs.tolist() == pytest.approx([0.0, -160.0])
    assert entropies.tolist() == pytest.approx([0.0, 0.0], abs=1e-5)
    assert bool(torch.isfinite(states.grad).all())  # pyright: ignore[reportArgumentType]


def test_frozen_weights_get_no_gradient_and_no_rows_give_zeros() -> None:
    states = torch.randn(0, 4, requires_grad=True)
    weight = torch.randn(10, 4, requires_grad=True)
    log_probs, entropies = chunked_token_scores(states, weight, torch.zeros(0, dtype=torch.int64), columns=3)
    (log_probs.sum() + entropies.sum()).backward()
    assert weight.grad is not None
    assert not weight.grad.any()
    frozen = torch.randn(10, 4)
    log_probs, _ = chunked_token_scores(
        torch.randn(3, 4, requires_grad=True), frozen, torch.zeros(3, dtype=torch.int64)
    )
    log_probs.sum().backward()
    assert frozen.grad is None


def test_the_head_is_cut_where_logits_would_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors kept for the backward pass show which way was taken."""
    linear = torch.nn.Linear(4, 100, bias=False)
    targets = torch.zeros(50, dtype=torch.int64)

    def largest_kept(mode: str) -> int:
        sizes: list[int] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            ScoringHead(linear, mode)(torch.randn(50, 4, requires_grad=True), targets)  # pyright: ignore[reportArgumentType]
        return max(sizes)

    assert largest_kept("plain") == 50 * 100
    assert largest_kept("chunked") == 100 * 4
    assert largest_kept("auto") == 50 * 100
    monkeypatch.setattr("tasks.training.scoring.LOGITS_BYTES", 50 * 100 * 4 - 1)
    assert largest_kept("auto") == 100 * 4
    assert LOGITS_BYTES == 256 * 2**20


KERNELS = """
import torch
from tasks.training import head_kernels, scoring, softmaxes
torch.manual_seed(0)
rows, columns, start = 5, 3000, 128
logits = torch.randn(rows, columns) * 4
targets = torch.tensor([0, 128, 130, 3127, 3128])
state = lambda: softmaxes.Statistics(torch.full((rows,), -torch.inf), *torch.zeros(3, rows).unbind())
ours, expected = state(), state()
for piece in (logits, logits.flip(0).contiguous()):
    head_kernels.accumulate_statistics(piece, targets, start, ours)
    scoring._accumulate(piece, targets, start, expected)
for a, b in zip(ours, expected):
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-5)
highest, entropies = logits.amax(-1), torch.rand(rows)
log_total = torch.logsumexp(logits, -1) - highest
of_log_probs, of_entropies = torch.randn(2, rows)
known = softmaxes.Softmaxes(highest, log_total, entropies, of_log_probs, of_entropies)
arguments = (targets, start, known, torch.float32)
a = head_kernels.logit_gradients(logits, *arguments)
b = scoring._gradients(logits.clone(), *arguments)
torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
print("equal")
"""


COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from tasks.training import head_kernels
whole = {"start", "columns", "stride", "out_stride"}
for kernel in (head_kernels._statistics_kernel, head_kernels._gradient_kernel):
    types = {name: "i32" if name in whole else "*fp32" for name in kernel.arg_names}
    types |= {"targets": "*i64", "block": "constexpr"} | ({"out": "*bf16"} if "out" in types else {})
    for target in (GPUTarget("cuda", 80, 32), GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
        compile(ASTSource(kernel, types, {"block": 2048}), target=target)
print("compiled")
"""


def test_the_kernels_equal_what_they_replace() -> None:
    assert _said(KERNELS, interpreted=True) == "equal"


def test_the_kernels_compile_for_gpus() -> None:
    """The interpreter accepts what the compiler refuses: annotations that it looks up, for one."""
    assert _said(COMPILED, interpreted=False) == "compiled"


def _said(program: str, *, interpreted: bool) -> str:
    """Run a program in a process of its own: whether kernels are interpreted is decided when Triton is imported."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TRITON_INTERPRET": str(int(interpreted))},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
