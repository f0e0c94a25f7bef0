"""Bare CUDA kernels and operations by name: wrapped into kernel and problem, or refused with what is missing."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.backends import is_interpreted
from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from tasks.problems.pair_formats.bare_cuda import problem_of, wrapped
from tasks.problems.pairs import load_pairs

ADD = """// adds two vectors
__global__ void vector_add(const float* __restrict__ a, const float *b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { c[i] = a[i] + b[i]; }
}
"""
OPERATION = {"operation": "vector addition", "shapes": [[1024], [1024]], "dtype": "float32"}
FASTER = ADD.replace(
    "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if",
    "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += n)\n    if",
)
PROBLEM = problem_of(OPERATION, "") or ""


def loaded(row: dict[str, Any], folder: Path) -> Any:
    (folder / "pairs.jsonl").write_text(json.dumps(row))
    (pair,) = load_pairs(folder / "pairs.jsonl", bad_rows=0)
    return pair


@pytest.mark.parametrize("fence", ["", "```cuda\n"])
def test_the_generators_example(fence: str, tmp_path: Path) -> None:
    pair = loaded({"input": OPERATION, "output": f"{fence}{ADD}{fence and '```'}"}, tmp_path)
    check_problem_source(pair.problem_source, "")
    assert "torch.add(x, y)" in pair.problem_source
    assert "torch.randn(1024), torch.randn(1024)" in pair.problem_source
    ast.parse(pair.kernel_source)
    assert (
        "vector_add<<<(count + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), count);"
        in pair.kernel_source
    )
    assert "return extension.launch(a.contiguous(), b.contiguous())" in pair.kernel_source
    assert not is_interpreted(pair.kernel_source, "auto")
    assert pair.earlier_source is None


def test_the_optimizers_example(tmp_path: Path) -> None:
    given = {**OPERATION, "kernel": ADD, "issues": ["uncoalesced"], "target_speedup": 2.0}
    pair = loaded({"input": given, "output": FASTER}, tmp_path)
    assert "i += n" in pair.kernel_source
    assert "class ModelNew" in pair.earlier_source
    assert "i += n" not in pair.earlier_source


def test_a_problem_in_words_around_a_bare_answer(tmp_path: Path) -> None:
    asked = f"Write a CUDA kernel:\n```python\n{PROBLEM}```\n"
    pair = loaded(
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": f"```cpp\n{ADD}```"}]},
        tmp_path,
    )
    assert "vector_add<<<" in pair.kernel_source


@pytest.mark.parametrize(
    "body",
    [
        "if (i < n) c[i] = a[i] + b[i];",
        "if (a[i] >= b[i]) c[i] += a[i]; else { c[i]= b[i]; }",
        "c[index[i]] = a[index[i]] == b[i];",
        "if (i < n &&a[i] > 0 && b[i] > 0) c[i]++;",
    ],
)
def test_without_const_the_pointer_is_written_to_whose_elements_are_assigned(body: str) -> None:
    kernel = wrapped(f"__global__ void f(float* a, float* b, float* c, int n) {{ int i = 0; {body} }}", PROBLEM, "")
    assert (
        "f<<<(count + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), count);"
        in kernel
    )
    half = wrapped(
        f"__global__ void f(__half* c, __half* a, const __half* b, int n) {{ int i = 0; {body} }}", PROBLEM, ""
    )
    passed = "reinterpret_cast<__half*>({}.data_ptr<at::Half>())"
    given = f"{passed.format('out')}, {passed.format('a')}, {passed.replace('<__', '<const __').format('b')}, count"
    assert given in half


@pytest.mark.parametrize(
    "body",
    [
        "b[i] = 0; c[i] = a[i];",
        "float* p = a; p[i] = 1; c[i] = b[i];",
        "c[i] = f(&a[i], b[i]);",
        "c[i] = a[i]++ + b[i];",
        "--b[i]; c[i] = a[i] + b[i];",
        "float& x = a[i]; x += 1; c[i] = x + b[i];",
    ],
)
def test_without_const_it_is_refused_if_another_pointer_may_be_written_to(body: str) -> None:
    with pytest.raises(InputError, match="found 0 const pointers, 3 others and 1 counts for a forward of 2 arguments"):
        wrapped(f"__global__ void f(float* a, float* b, float* c, int n) {{ int i = 0; {body} }}", PROBLEM, "")


def test_half_precision_has_its_header_and_casts() -> None:
    kernel = wrapped(ADD.replace("float", "__half"), PROBLEM, "")
    assert "#include <cuda_fp16.h>" in kernel
    assert "reinterpret_cast<const __half*>(a.data_ptr<at::Half>())" in kernel
    assert "reinterpret_cast<__half*>(out.data_ptr<at::Half>())" in kernel


@pytest.mark.parametrize(
    ("cuda", "sentence"),
    [
        (ADD + ADD.replace("vector_add", "other"), "found 2 kernels"),
        (ADD.replace("int n", "float alpha, int n"), "found the parameter `float alpha`"),
        (ADD.replace("const float *b, ", ""), "found 1 const pointers, 1 others and 1 counts for a forward of 2 arguments"),
        (ADD.replace("int n", "int rows, int columns"), "1 others and 2 counts"),
        (ADD.replace("threadIdx.x", "threadIdx.y"), "blocks of two dimensions"),
        (ADD.replace("int i", "extern __shared__ float s[]; int i"), "shared memory of an unknown size"),
        ("template <typename T>\n" + ADD, "found a template"),
        (ADD + "int main() { return 0; }", "found a program"),
        (ADD.replace("const float *b", "const float **b"), "found the parameter"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(cuda: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        wrapped(cuda, PROBLEM, "pairs.jsonl line 1: field `output`")
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("pairs.jsonl line 1: field `output`: a bare __global__ kernel: ")
    assert "expected host code as well" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"operation": "flash attention", "shapes": [[8]]},
            "operation 'flash attention' has no program to judge against",
        ),
        ({"operation": "add"}, "shapes: expected a list of whole numbers above 0 for each of 2 arguments, found None"),
        ({"operation": "relu", "shapes": [[0]]}, "shapes: expected"),
        ({"operation": "relu", "shapes": [[True]]}, "shapes: expected"),
        ({"operation": "relu", "shape": "8x8"}, "shapes: expected"),
        ({"operation": "relu", "shape": [8], "dtype": "int3"}, "dtype: expected one of"),
    ],
)
def test_a_bad_operation_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        problem_of(given, "here")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ({"op": "ReLU", "shape": [4, 8]}, "torch.randn(4, 8)"),
        ({"operation": "elementwise_mul", "shapes": {"a": [4], "b": [4]}}, "torch.randn(4), torch.randn(4)"),
        ({"operation": "exp", "size": 64, "dtype": "torch.float16"}, "torch.randn(64, dtype=torch.float16)"),
    ],
)
def test_names_and_shapes_as_people_write_them(given: dict[str, Any], inputs: str) -> None:
    found = problem_of(given, "")
    assert found is not None
    assert f"return [{inputs}]" in found
