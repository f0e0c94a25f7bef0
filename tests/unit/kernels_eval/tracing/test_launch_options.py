"""Options of a launch: those that Triton's own launcher refuses are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from kernels_eval.trace.schema import LaunchKernel
from kernels_eval.tracing.launch_recorder import KernelArgumentError, _check_options


@pytest.mark.parametrize(
    "options", [{}, {"num_warps": 8, "num_stages": 3}, {"maxnreg": 64, "num_ctas": 1, "waves_per_eu": 2}]
)
def test_options_of_a_vendor_are_taken(options: dict[str, Any]) -> None:
    _check_options(options)


@pytest.mark.parametrize("warps", [0, -1, 3, 1.0])
def test_warps_are_a_power_of_two(warps: Any) -> None:
    with pytest.raises(KernelArgumentError, match="power of 2"):
        _check_options({"num_warps": warps})


def test_a_keyword_that_nobody_knows_is_named() -> None:
    with pytest.raises(KernelArgumentError, match="BLOK was specified but unrecognised"):
        _check_options({"num_warps": 4, "BLOK": 16})


@pytest.mark.parametrize("warps", [0, -4])
def test_a_program_without_threads_is_none(warps: int) -> None:
    """Host code can replace the recorder: the worker checks for itself."""
    with pytest.raises(ValidationError, match="at least one warp"):
        LaunchKernel(kernel=0, arguments={}, grid=(1, 1, 1), options={"num_warps": warps})


@pytest.mark.parametrize("options", [{"arch": "sm_70"}, {"ptx_options": "-O0"}, {"ir_override": "k.ptx"}])
def test_what_a_kernel_is_compiled_for_is_not_its_own_choice(options: dict[str, Any]) -> None:
    with pytest.raises(KernelArgumentError, match="the judge decides"):
        _check_options(options)
    _check_options(dict.fromkeys(options))
