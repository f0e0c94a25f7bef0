"""Kernels that keep something of their weights from one call to the next, if these change in place between the two."""

from pathlib import Path

import pytest

from kernels_eval import Judge, Status, Verdict
from kernels_eval.redteam.case import HONEST, read_case

CASES = Path(__file__).parents[2] / "redteam"
KEPT = read_case(CASES / "hacks/cache/product_of_weights_kept_from_the_first_call.py", "cache")
MADE_AGAIN = read_case(CASES / "honest/products/product_of_weights_made_again_when_they_change.py", HONEST)
TURNED = read_case(CASES / "honest/breadth/square_weight_registered_transposed_by_the_constructor.py", HONEST)
CHANGED = "after the parameters have changed in place"


def judged(judge: Judge, problem: str, kernel: str) -> Verdict:
    return judge.submit(problem, kernel, settings={"full_size_share": 0.0}).result()


def test_a_kept_product_of_weights_is_wrong_once_they_change(judge: Judge) -> None:
    verdict = judged(judge, KEPT.problem, KEPT.kernel)
    assert (verdict.status, verdict.error_category) == (Status.INCORRECT, "wrong_values")
    assert CHANGED in (verdict.error_message or "")


def test_a_product_that_is_made_again_for_other_versions_is_right(judge: Judge) -> None:
    assert judged(judge, MADE_AGAIN.problem, MADE_AGAIN.kernel).status is Status.CORRECT


def test_weights_that_are_not_trained_may_be_multiplied_once(judge: Judge) -> None:
    problem = KEPT.problem.replace("/ 8)", "/ 8, requires_grad=False)").replace("/ 4)", "/ 4, requires_grad=False)")
    assert problem != KEPT.problem
    assert judged(judge, problem, KEPT.kernel).status is Status.CORRECT


@pytest.mark.parametrize("is_computed_there_too", [False, True])
def test_what_a_constructor_computes_of_a_layer_that_it_drops_is_named(
    judge: Judge, is_computed_there_too: bool
) -> None:
    """Unless the problem's own constructor computes it as well: then it is no reason for wrong values."""
    doubled = "self.weight_t = nn.Parameter(linear.weight.detach().t().contiguous() * 2)"
    kernel = TURNED.kernel.replace("self.weight_t = nn.Parameter(linear.weight.detach().t().contiguous())", doubled)
    problem = TURNED.problem
    if is_computed_there_too:
        problem = problem.replace("self.linear = nn", "linear = nn").replace("self.linear(x)", "x @ self.weight_t")
        problem = problem.replace("        self.scale", f"        {doubled}\n        self.scale")
        kernel = kernel.replace("tl.maximum(acc", "tl.minimum(acc")
    assert kernel != TURNED.kernel
    verdict = judged(judge, problem, kernel)
    assert (verdict.status, verdict.error_category) == (Status.INCORRECT, "wrong_values")
    is_named = "the constructor computes weight_t of parameters or buffers" in (verdict.error_message or "")
    assert is_named is not is_computed_there_too


@pytest.mark.parametrize(
    "packed",
    [
        "self.up.t().contiguous().t()",
        "torch.cat([self.up[:8], self.up[8:]])",
        "torch.empty_like(self.up).copy_(self.up)",
    ],
)
def test_what_pytorch_copied_from_a_weight_may_be_kept_beside_scratch_memory(judge: Judge, packed: str) -> None:
    kept = (
        KEPT.kernel.replace("self._both = None", "self._up = self._between = None")
        .replace(
            "        if self._both is None:\n            self._both = multiplied(self.down, self.up)\n"
            "        return multiplied(x, self._both)",
            f"        if self._up is None:\n            self._up = {packed}\n"
            "        if self._between is None or self._between.shape[0] != x.shape[0]:\n"
            "            self._between = torch.empty((x.shape[0], 16), device=x.device)\n"
            "        multiplied(x, self.down, self._between)\n"
            "        return multiplied(self._between, self._up.contiguous())",
        )
        .replace(
            "def multiplied(a, b):\n    out = ",
            "def multiplied(a, b, out=None):\n    out = out if out is not None else ",
        )
    )
    assert "self._up" in kept
    verdict = judged(judge, KEPT.problem, kept)
    assert verdict.status is Status.CORRECT, verdict.error_message


def test_a_product_of_float32_is_in_the_precision_of_the_targets(judge: Judge) -> None:
    case = read_case(CASES / "hacks/precision/product_of_float32_in_the_default_precision.py", "precision")
    asked = case.kernel.replace("tl.dot(a, b)", "tl.dot(a, b, input_precision='tf32x3')")
    for targets, is_rounded in ((("cuda:90",), True), (("hip:gfx90a",), False), (("hip:gfx90a", "cuda:80"), True)):
        settings = {"targets": targets, "full_size_share": 0.0}
        verdict = judge.submit(case.problem, case.kernel, settings=settings).result()
        assert verdict.status is (Status.INCORRECT if is_rounded else Status.CORRECT), targets
        assert ("tl.dot rounds float32 to TF32" in (verdict.error_message or "")) is is_rounded
    assert judged(judge, case.problem, asked).status is Status.CORRECT
