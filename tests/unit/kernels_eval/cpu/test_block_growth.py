"""Sizes of blocks at a problem's own sizes: they are told only where the text tells all of them."""

import pytest

from kernels_eval.cpu.block_growth import own_shape, own_sizes_of_blocks
from kernels_eval.trace.schema import KernelReference, KernelSource, LanguageName, LaunchKernel, ModuleName, Plain

MODULES = {"tl": ModuleName(kind="module", name="triton.language"), "triton": ModuleName(kind="module", name="triton")}


def launch(**numbers: int) -> LaunchKernel:
    arguments = {name: Plain(value=value) for name, value in numbers.items()}
    return LaunchKernel(kernel=0, arguments=arguments, grid=(8, 1, 1))


def sizes(body: str, other: str = "def other(x):\n    return x\n") -> dict[int, int]:
    """Return the sizes of a kernel's blocks where BLOCK is 64 and then 4096, SMALL 16, and N 50 and then 4000."""
    source = f"def kernel(x_ptr, N, BLOCK: tl.constexpr, SMALL: tl.constexpr):\n    {body}\n"
    globals_ = {**MODULES, "other": KernelReference(kernel=1), "lanes": LanguageName(name="arange")}
    globals_ |= {"shaped": LanguageName(name="reshape")}
    kernels = {
        0: KernelSource(number=0, name="kernel", source=source, line=1, globals=globals_),
        1: KernelSource(number=1, name="other", source=other, line=1, globals=dict(MODULES)),
    }
    small, large = launch(N=50, BLOCK=64, SMALL=16), launch(N=4000, BLOCK=4096, SMALL=16)
    return dict(own_sizes_of_blocks(small, large, kernels))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("i = tl.arange(0, BLOCK)", {64: 4096}),
        ("i = tl.arange(0, triton.next_power_of_2(BLOCK // 2 + 1))", {64: 4096}),
        ("i = tl.arange(0, BLOCK)\n    j = tl.arange(0, SMALL)", {64: 4096, 16: 16}),
        ("HALF: tl.constexpr = BLOCK // 2\n    i = tl.arange(0, HALF)", {32: 2048}),
        ("a = tl.zeros((SMALL, BLOCK), tl.float32)", {16: 16, 64: 4096}),
        ("i = tl.arange(0, BLOCK)\n    a = tl.zeros([2 * 32], tl.float32)", {64: 64}),
        ("i = tl.arange(0, BLOCK)\n    j = lanes(0, 64)", {64: 64}),
        ("i = tl.arange(0, BLOCK)\n    a = tl.full((SMALL * 4,), 0.0, tl.float32)", {64: 64}),
    ],
)
def test_sizes_that_the_text_tells(body: str, expected: dict[int, int]) -> None:
    assert sizes(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "i = tl.arange(0, BLOCK)\n    a = tl.reshape(i, (8, 8))",
        "i = tl.arange(0, BLOCK)\n    a = i.reshape((8, 8))",
        "i = tl.arange(0, BLOCK)\n    a = tl.join(i, i)",
        "i = tl.arange(0, BLOCK)\n    a = shaped(i, (8, 8))",
        "i = tl.arange(0, BLOCK)\n    of = tl.arange\n    j = of(0, 64)",
        "i = tl.arange(0, BLOCK)\n    j = SMALL(0, 64)",
        "i = tl.arange(0, BLOCK)\n    size = 32\n    size = 64\n    a = tl.zeros((size,), tl.float32)",
    ],
)
def test_a_block_of_unknown_size_leaves_all_as_they_are(body: str) -> None:
    assert sizes(body) == {}


def test_a_function_that_makes_blocks_of_what_it_is_given_leaves_all_as_they_are() -> None:
    body = "i = other(BLOCK)\n    j = tl.arange(0, BLOCK)"
    assert sizes(body, "def other(SIZE: tl.constexpr):\n    return tl.arange(0, SIZE)\n") == {}
    assert sizes(body, "def other(SIZE: tl.constexpr):\n    return tl.arange(0, 32)\n") == {64: 4096, 32: 32}


def test_elements_of_a_shape() -> None:
    assert own_shape("16x64", {64: 4096}) == (1024, 65536)
    assert own_shape("", {64: 4096}) == (1, 1)
