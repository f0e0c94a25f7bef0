"""Names that generated kernels import: replaced for the source that needs them, in its process, and nowhere else."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.sandbox.inductor_names import grid, provide, provided_names, split_scan_grid

IMPORTS = {
    "from torch._inductor.runtime.triton_heuristics import grid": "torch._inductor.runtime.triton_heuristics",
    "from torch._inductor.triton_heuristics import grid": "torch._inductor.runtime.triton_heuristics",
    "from torch._inductor.runtime import triton_helpers": "torch._inductor.runtime.triton_helpers",
    "from torch._inductor import triton_helpers": "torch._inductor.runtime.triton_helpers",
    "from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math": (
        "torch._inductor.runtime.triton_helpers"
    ),
    "from torch._inductor.select_algorithm import extern_kernels": "torch._inductor.select_algorithm",
    "from torch._C import _cuda_getCurrentRawStream as get_raw_stream": "torch._C._cuda_getCurrentRawStream",
}


@pytest.mark.parametrize("line", IMPORTS)
@pytest.mark.long
def test_each_import_of_generated_code_works_in_the_candidates_process(line: str):
    assert provided_names(line, on_gpu=False) == (IMPORTS[line],)
    program = (
        "import sys, torch\nfrom kernels_eval.sandbox.inductor_names import provide\n"
        f"source = {line!r}\nprovide(source, on_gpu=False)\nexec(source)\n"
        "assert 'torch._inductor.compile_fx' not in sys.modules, 'the compiler was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_stream_is_a_number_also_where_pytorch_would_ask_the_driver_for_it(monkeypatch: pytest.MonkeyPatch):
    """A build of PyTorch with CUDA has the function, and raises without a driver."""

    def ask(_device: int) -> int:
        raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version")

    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", ask, raising=False)
    source = "from torch._C import _cuda_getCurrentRawStream as get_raw_stream"
    provide(source, on_gpu=False)
    found: dict[str, Any] = {}
    exec(source, found)
    assert found["get_raw_stream"](0) == 0


def test_other_sources_change_nothing():
    source = "import torch\nimport triton\nx = torch.relu\n"
    assert provided_names(source, on_gpu=False) == ()


def test_on_a_gpu_what_pytorch_has_is_pytorchs():
    everything = "\n".join(IMPORTS)
    assert provided_names(everything, on_gpu=True) == (
        "torch._inductor.runtime.triton_heuristics",
        "torch._inductor.select_algorithm",
    )


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=3), st.lists(st.integers(1, 512), min_size=3, max_size=3))
def test_a_grid_covers_every_element_and_no_block_more(numels: list[int], blocks: list[int]):
    sizes = dict(zip(("XBLOCK", "YBLOCK", "ZBLOCK"), blocks, strict=True))
    found = grid(*numels)(sizes)
    assert len(found) == 3
    for numel, programs, block in zip(reversed(numels), found, blocks, strict=False):
        assert numel <= programs * block < numel + block
    assert all(programs == 1 for programs in found[len(numels) :])


def test_a_split_scan_has_a_row_of_programs_for_each_element():
    assert split_scan_grid(7, 1000)({"RBLOCK": 256}) == (4, 7, 1)
