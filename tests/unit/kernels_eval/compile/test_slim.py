"""Choice of the extensions that are built without PyTorch's headers, and how their functions are called."""

import pytest

from kernels_eval.compile.slim import Signature, is_beyond, module_text, needs_std, signatures_of
from kernels_eval.compile.slim_builds import is_final

TWO = """
#include <torch/extension.h>
// torch::Tensor not_this(torch::Tensor x);
torch::Tensor add(torch::Tensor x, const torch::Tensor& y);
void fill(at::Tensor out, double value, int64_t n, bool twice, long, const int m) ;
"""


def test_declarations_say_what_arguments_are():
    add = Signature("add", True, ("tensor", "tensor"))
    fill = Signature("fill", False, ("tensor", "number", "integer", "boolean", "integer", "integer"))
    assert signatures_of(TWO, ("fill", "add")) == [fill, add]
    assert signatures_of("torch::Tensor one();", ("one",)) == [Signature("one", True, ())]


@pytest.mark.parametrize(
    "declarations",
    [
        "torch::Tensor f(torch::Tensor x) { return x; }",
        "torch::Tensor f(torch::Tensor x = {});",
        "torch::Tensor f(std::vector<torch::Tensor> x);",
        "torch::Tensor f(c10::optional<torch::Tensor> x);",
        "std::vector<torch::Tensor> f(torch::Tensor x);",
        "torch::Tensor f(torch::Tensor* x);",
        "#include <vector>\ntorch::Tensor f(torch::Tensor x);",
        "torch::Tensor g(torch::Tensor x);",
        "",
    ],
)
def test_anything_but_a_plain_declaration_of_each_function_needs_pytorch_s_headers(declarations: str):
    assert signatures_of(declarations, ("f",)) is None


def test_no_function_is_no_module():
    assert signatures_of("torch::Tensor f(torch::Tensor x);", ()) is None


@pytest.mark.parametrize(
    ("text", "beyond"),
    [
        ("auto stream = at::cuda::getCurrentCUDAStream();", True),
        ("c10::cuda::CUDAGuard guard(x.device());", True),
        ("AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), ...)", False),
        ("AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), ...)", True),
        ("AT_DISPATCH_ALL_TYPES(x.scalar_type(), ...)", True),
        ("auto out = torch::empty_like(x);", False),
    ],
)
def test_names_that_are_not_declared_are_not_tried(text: str, beyond: bool):
    assert is_beyond(text) is beyond


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("#include <torch/extension.h>\nauto out = torch::empty_like(x);  // std::move", False),
        ("int n = std::min(a, b);", True),
        ("using namespace std;", True),
        ("#include <vector>", True),
    ],
)
def test_the_library_s_headers_are_read_where_it_is_named(text: str, needs: bool):
    assert needs_std(text) is needs


@pytest.mark.parametrize(
    ("line", "source", "final"),
    [
        ('cuda.cu(5): error: identifier "no_such_name" is undefined', "", True),
        ('cuda.cu(5): error: expected a ";"', "", True),
        ('cuda.cu(5): error: identifier "TORCH_CHECK_EQ" is undefined', "", False),
        ('cuda.cu(5): error: identifier "no_such_name" is undefined', "using namespace at;", False),
        ('cuda.cu(5): error: class "torch::Tensor" has no member "view"', "", False),
        ('cuda.cu(5): error: namespace "std" has no member "optional"', "", False),
        ('cuda.cu(5): error: name followed by "::" must be a class or namespace name', "", False),
        ('cuda.cu(1): fatal error: cannot open source file "cub/cub.cuh"', "", False),
        ("ptxas error   : Entry function '_Z1fv' uses too much shared data", "", True),
        ("undefined reference to `f()'", "", False),
    ],
)
def test_an_error_is_final_unless_pytorch_s_headers_may_mend_it(line: str, source: str, final: bool):
    assert is_final(line, source) is final


def test_each_argument_is_converted_as_its_type_says():
    text = module_text("name", signatures_of(TWO, ("add", "fill")) or [])
    assert "slim::python(add(slim::tensor(given[0]), slim::tensor(given[1])));" in text
    assert "fill(slim::tensor(given[0]), slim::number(given[1]), slim::integer(given[2]), slim::boolean(" in text
    assert "PyInit_name" in text
