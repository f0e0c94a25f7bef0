"""The generated CUDA C++ compiles for an H100, as a GPU-less judge compiles it; one file with many modules is quicker."""

import random
import shutil
from pathlib import Path

import pytest

from kernels_eval.compile.extension import Extension
from kernels_eval.compile.nvcc import compile_device_code, parse_resources
from kernels_eval.compile.slim_builds import build_slim_library, prepare_slim_builds
from tasks.problems.config import ProblemsConfig
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.cuda.sources import cuda_source
from tasks.problems.synthetic.cuda.styles import CudaStyle, styles_of
from tasks.problems.synthetic.operators import ALL
from tasks.problems.synthetic.suite import draw_training_compositions

pytestmark = [
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"),
    pytest.mark.long,
    pytest.mark.timeout(1200),
]
CONFIG = ProblemsConfig(train=1, heldout=8)


@pytest.mark.parametrize("style", CudaStyle)
def test_every_operator_compiles_in_every_style_without_spills(style: CudaStyle, tmp_path: Path) -> None:
    drawn = draw_training_compositions(CONFIG, 12, seed=0)
    chosen = [*(parse_composition(operator.name) for operator in ALL), *drawn]
    sources = [cuda_source(one, style).split('"""')[1] for one in chosen if style in styles_of(one)]
    code = "\n".join(f"namespace case_{number} {{\n{source}\n}}" for number, source in enumerate(sources))
    # Without declarations it would be compiled with PyTorch's headers, ten times slower.
    extension = Extension.of("many", "torch::Tensor forward(torch::Tensor x);", code, ["forward"])
    log = compile_device_code(extension, tmp_path, "cuda:90")
    assert log.count("Compiling entry function") == code.count("__global__ void") > 10
    assert {kernel["spills"] for kernel in parse_resources(log)} == {0}


def test_a_drawn_module_is_built_without_pytorch_s_headers(tmp_path: Path) -> None:
    (composition,) = draw_training_compositions(CONFIG, 1, seed=1)
    style = random.Random(0).choice(styles_of(composition))
    source = cuda_source(composition, style)
    declaration = source.split('declaration = "')[1].split('"')[0]
    extension = Extension.of("generated", declaration, source.split('"""')[1], ["forward"])
    prepare_slim_builds()
    assert build_slim_library(extension, tmp_path, ["cuda:90"]) is not None
