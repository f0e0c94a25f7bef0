"""Bare CUDA kernels and operations by name, as hand-written corpora have them, made into kernel and problem.

A bare kernel is one `__global__` function without host code. It is wrapped if its parameters say how it is called: a
`const` pointer for each argument of the problem's `forward`, one pointer to write to, and one count of elements, in
any order. It is then launched with 256 threads a block and a thread an element, and writes a tensor like the first
argument. Whether that is right the judge says. Of anything else an InputError says what is missing. Where several
pointers are not `const`, the one to write to is the only one whose elements the body assigns, if it does no more with
the others than to read their elements.

An operation is `{"operation": "add", "shapes": [[1024], [1024]], "dtype": "float32"}`, an element-wise one of PyTorch.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kernels_eval.errors import InputError
from kernels_eval.syntax import syntax_tree
from tasks.answers.fences import fenced
from tasks.problems.row import shown

_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORDS = re.compile(r"\w+|\*")
_TYPES = {"float": "float", "double": "double", "half": "at::Half", "__half": "at::Half"}
"""Types of elements, and those of the tensors' pointers."""
_COUNTS = {"int", "unsigned", "size_t", "long", "int64_t", "int32_t", "uint32_t"}
_IGNORED = {"const", "__restrict__", "restrict", "struct", "volatile"}
_HOST = ("PYBIND11_MODULE", "torch::Tensor", "load_inline", "<<<")
OPERATION_KEYS = ("operation", "shapes", "dtype")
_NAMES = {
    "operation": ("operation", "op", "operator"),
    "shapes": ("shapes", "shape", "input_shapes", "input_shape", "size"),
    "dtype": ("dtype", "data_type"),
}
_UNARY = ("relu", "sigmoid", "tanh", "exp", "sqrt", "abs", "square", "neg", "sin", "cos")
_OPERATORS = {
    **{name: (1, f"torch.{name}(x)") for name in _UNARY},
    **{name: (1, f"torch.nn.functional.{name}(x)") for name in ("gelu", "silu", "softplus", "leaky_relu")},
    **{name: (2, f"torch.{name}(x, y)") for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
}
_ALIASES = {"addition": "add", "subtraction": "sub", "multiplication": "mul", "multiply": "mul", "division": "div"}
_DTYPES = {"float32", "float16", "float64", "bfloat16"}


class _Parameter(NamedTuple):
    name: str
    type: str
    pointer: bool
    const: bool


def bare_kernel_in(text: str) -> str | None:
    """Return the bare kernel in a text, as it is or in a fenced block; None if there is none."""
    blocks = [block for block in fenced(text).blocks if "__global__" in block]
    source = blocks[-1] if blocks else text
    is_bare = "__global__" in source and not any(mark in source for mark in _HOST)
    return source if is_bare else None


def wrapped(cuda: str, problem: str, where: str) -> str:
    """Return a bare kernel with host code, as a module with `ModelNew`. Raises InputError with what is missing."""
    plain = _COMMENT.sub(" ", cuda)
    found = _KERNEL.findall(plain)
    missing = "; expected host code as well: Python with a ModelNew that builds and launches it (docs/problems.md)"
    if len(found) != 1 or "template" in plain or re.search(r"\bmain\s*\(", plain):
        what = "a program" if "main" in plain else "a template" if "template" in plain else f"{len(found)} kernels"
        raise InputError(f"{where}: a bare __global__ kernel: found {what}{missing}")
    for mark, reason in (
        ("extern __shared__", "shared memory of an unknown size"),
        ("blockIdx.y", "a grid of two dimensions"),
        ("threadIdx.y", "blocks of two dimensions"),
    ):
        if mark in plain:
            raise InputError(f"{where}: a bare __global__ kernel: found {reason}{missing}")
    name, declared = found[0]
    parameters = [_parameter(part, where, missing) for part in declared.split(",")]
    written = _written([one for one in parameters if one.pointer and not one.const], plain)
    read = [one for one in parameters if one.pointer and one not in written]
    counts = [one for one in parameters if not one.pointer]
    arguments = _forward_arguments(problem)
    if len(read) != len(arguments) or len(written) != 1 or len(counts) != 1:
        raise InputError(
            f"{where}: a bare __global__ kernel: found {len(read)} const pointers, {len(written)} others and "
            f"{len(counts)} counts for a forward of {len(arguments)} arguments, expected one const pointer each, one "
            f"pointer to write to and one count{missing}"
        )
    return _module(cuda, name, parameters, [one.name for one in read], written[0])


def _written(pointers: list[_Parameter], kernel: str) -> list[_Parameter]:
    """Return those of the pointers that are not const to which the kernel writes: all, unless its body says which."""
    body = kernel[kernel.index("{", kernel.index("__global__")) :]
    if re.search(r"\b(?:float|double|half|auto)\s*&", body):  # another name for an element, of whichever pointer
        return pointers
    index = r"\s*\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]"
    step = r"(?:\+\+|--)"
    assigned = [
        one
        for one in pointers
        if re.search(rf"\b{one.name}{index}\s*(?:[-+*/]?=(?!=)|{step})|{step}\s*{one.name}\b", body)
    ]
    others = [one for one in pointers if one not in assigned]
    reads_alone = not any(re.search(rf"(?<!&)&\s*{one.name}\b|\b{one.name}\b(?!\s*\[)", body) for one in others)
    return assigned if len(assigned) == 1 and reads_alone else pointers


def problem_of(given: Mapping[str, Any], where: str) -> str | None:
    """Return the problem of an operation by name; None if the object names none. Raises InputError for a bad one."""
    values = {key: next((given[name] for name in names if name in given), None) for key, names in _NAMES.items()}
    if values["operation"] is None:
        return None
    operation = values["operation"]
    name = re.sub(r"\W+", "_", str(operation).strip().lower())
    name = re.sub(r"^(?:vector|element_?wise|tensor)_", "", name)
    name = _ALIASES.get(name, name)
    if name not in _OPERATORS:
        raise InputError(
            f"{where}: operation {shown(operation)} has no program to judge against; expected `problem`, a KernelBench "
            f"problem, or one of {', '.join(sorted(_OPERATORS))}"
        )
    number, expression = _OPERATORS[name]
    shapes = _shapes(values["shapes"], number, where)
    dtype = str(values["dtype"] or "float32").removeprefix("torch.")
    dtype = {"float": "float32", "half": "float16", "double": "float64", "fp32": "float32", "fp16": "float16"}.get(
        dtype, dtype
    )
    if dtype not in _DTYPES:
        raise InputError(
            f"{where}: dtype: expected one of {', '.join(sorted(_DTYPES))}, found {shown(values['dtype'])}"
        )
    given_type = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    inputs = ", ".join(f"torch.randn({', '.join(map(str, shape))}{given_type})" for shape in shapes)
    arguments = ", ".join(("x", "y")[:number])
    return (
        f"import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, {arguments}):\n"
        f"        return {expression}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )


def _parameter(declared: str, where: str, missing: str) -> _Parameter:
    words = _WORDS.findall(declared)
    kinds = [word for word in words[:-1] if word not in _IGNORED and word != "*"]
    name, pointer = words[-1] if words else "", words.count("*")
    known = _TYPES if pointer else _COUNTS
    if pointer > 1 or not kinds or kinds[0] not in known or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise InputError(f"{where}: a bare __global__ kernel: found the parameter `{declared.strip()[:60]}`{missing}")
    return _Parameter(name, kinds[0], bool(pointer), "const" in words)


def _forward_arguments(problem: str) -> list[str]:
    model = next(node for node in syntax_tree(problem).body if isinstance(node, ast.ClassDef) and node.name == "Model")
    forward = [node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"]
    return [argument.arg for argument in forward[0].args.args[1:]] if forward else []


def _module(cuda: str, name: str, parameters: Sequence[_Parameter], read: Sequence[str], written: _Parameter) -> str:
    """Return the module that builds the kernel and launches it."""
    tensors = ", ".join(f"torch::Tensor {each}" for each in read)

    def passed(one: _Parameter) -> str:
        if not one.pointer:
            return "count"
        holder, const = "out" if one == written else one.name, "const " if one.const else ""
        pointer = f"{holder}.data_ptr<{_TYPES[one.type]}>()"
        return f"reinterpret_cast<{const}{one.type}*>({pointer})" if "half" in one.type else pointer

    half = "#include <cuda_fp16.h>\n" if any("half" in one.type for one in parameters) else ""
    code = (
        f"{half}{cuda.strip(chr(10))}\n\n"
        f"torch::Tensor launch({tensors}) {{\n"
        f"    auto out = torch::empty_like({read[0]});\n"
        "    int count = out.numel();\n"
        f"    {name}<<<(count + 255) / 256, 256>>>({', '.join(passed(one) for one in parameters)});\n"
        "    return out;\n}\n"
    )
    quoted = f'r"""\n{code}"""' if '"""' not in code and not code.endswith("\\") else repr(code)
    arguments = ", ".join(read)
    handed = ", ".join(f"{each}.contiguous()" for each in read)
    return (
        "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n\n"
        f"cuda_source = {quoted}\n"
        f'extension = load_inline("bare_kernel", cpp_sources="torch::Tensor launch({tensors});",\n'
        '                        cuda_sources=cuda_source, functions=["launch"])\n\n\n'
        "class ModelNew(nn.Module):\n"
        "    def __init__(self, *_):\n        super().__init__()\n\n"
        f"    def forward(self, {arguments}):\n        return extension.launch({handed})\n"
    )


def _shapes(value: Any, number: int, where: str) -> list[list[int]]:
    """Return a shape for each argument; one shape stands for all."""
    listed: Any = list(value.values()) if isinstance(value, dict) else [value] if isinstance(value, int) else value
    if isinstance(listed, list) and listed and all(isinstance(size, int) for size in listed):
        listed = [listed] * number
    is_good = (
        isinstance(listed, list)
        and len(listed) >= number
        and all(isinstance(shape, list) and shape for shape in listed[:number])
        and all(
            isinstance(size, int) and not isinstance(size, bool) and size > 0
            for shape in listed[:number]
            for size in shape
        )
    )
    if not is_good:
        raise InputError(
            f"{where}: shapes: expected a list of whole numbers above 0 for each of {number} arguments, found "
            f"{shown(value)}"
        )
    return [list(shape) for shape in listed[:number]]
