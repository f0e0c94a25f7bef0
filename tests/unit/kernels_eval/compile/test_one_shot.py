"""Resources of compiled kernels are found again for each launch, by what the compiler was asked."""

from kernels_eval.compile.one_shot import usages_of
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.occupancy import Usage
from kernels_eval.verdict import Resources

TARGETS = ("cuda:80", "cuda:90", "hip:gfx942")


def launch(number: int, programs: int = 1, **options: int) -> Launch:
    return Launch(kernel=f"k{number}", kernel_number=number, programs=programs, options=options)


def used(number: int, target: str, registers: int, spills: int = 0) -> Resources:
    return Resources(kernel=f"k{number}", architecture=target, registers=registers, shared_bytes=0, spills=spills)


LAUNCHES = [launch(1), launch(0, 7), launch(1, 9), launch(1, num_warps=8)]
RESOURCES = [
    used(number, target, 10 * place + offset, spills=1)
    for place, number in enumerate((1, 0, 1))
    for offset, target in enumerate(TARGETS)
]


def test_launches_of_one_kernel_share_what_was_compiled_once() -> None:
    found = usages_of(LAUNCHES, RESOURCES, TARGETS, "cuda:90")
    assert [usage.registers for usage in found if usage] == [1, 11, 1, 21]


def test_the_first_target_stands_for_one_that_was_not_compiled_for() -> None:
    found = usages_of(LAUNCHES, RESOURCES, TARGETS, "cuda:100")
    assert [usage.registers for usage in found if usage] == [0, 10, 0, 20]


def test_spills_are_bytes_or_registers_by_the_vendor() -> None:
    nvidia, amd = (usages_of(LAUNCHES, RESOURCES, TARGETS, name)[0] for name in ("cuda:90", "hip:gfx942"))
    assert nvidia == Usage(1, 0, 1)
    assert amd == Usage(2, 0, 4)


def test_what_was_not_compiled_has_no_usage() -> None:
    strange = [launch(-1), launch(0), launch(2)]
    found = usages_of(strange, [used(0, "cuda:90", 5)], ("cuda:90",), "cuda:90")
    assert [usage.registers if usage else None for usage in found] == [None, 5, None]
    assert usages_of(strange, [], (), "cuda:90") == [None] * 3
