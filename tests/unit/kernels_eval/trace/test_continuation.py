"""When the program at a large size is the one that two smaller sizes lead to expect."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.trace.continuation import continues, first_break
from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT, TRACING_ANSWER, TraceAnswer

SIZES = (8, 16, 4096)


def at_sizes(law: Callable[[int], Any], sizes: tuple[int, int, int] = SIZES) -> list[Any]:
    return [law(size) for size in sizes]


def ceil_div(size: int, tile: int) -> int:
    return -(-size // tile)


@pytest.mark.parametrize(
    "law",
    [
        lambda n: 7,
        lambda n: n,
        lambda n: 3 * n + 5,
        lambda n: 100 * n - 1,
        lambda n: n * n,
        lambda n: n**3,
        lambda n: ceil_div(n, 4),
        lambda n: ceil_div(n, 8) * 8,
        lambda n: n // 4 * 4,
        lambda n: n // 5,
        lambda n: ceil_div(n, 3),
        lambda n: 1 << (n - 1).bit_length(),
        lambda n: float(n),
        lambda n: 1.0 / n,
        lambda n: 1.0 / (n - 1),
        lambda n: 1.0 / (64 * n),
        lambda n: math.sqrt(n),
        lambda n: n**-0.5,
        lambda n: math.log(n),
        lambda n: float("nan"),
        lambda n: float("inf"),
        lambda n: True,
        lambda n: None,
        lambda n: "relu",
    ],
)
@pytest.mark.parametrize("sizes", [SIZES, (8, 16, 1000), (32, 64, 2500), (4, 8, 24)])
def test_numbers_that_follow_the_size_continue(law: Callable[[int], Any], sizes: tuple[int, int, int]) -> None:
    if law(sizes[0]) == law(sizes[1]) != law(sizes[2]):
        pytest.skip("constant so far")
    assert continues(at_sizes(law, sizes), sizes)


@pytest.mark.parametrize(
    "law",
    [
        lambda n: min(n, 3000),
        lambda n: min(64 * n, 64_000),
        lambda n: float(min(64 * n, 64_000)),
        lambda n: n if n < 1000 else n - 1,
        lambda n: n if n < 1000 else n * 9 // 10,
        lambda n: n if n < 1000 else 0,
        lambda n: n // 300,
        lambda n: n > 1000,
        lambda n: 1.0 if n < 1000 else 0.0,
        lambda n: 1.0 / min(n, 1000),
        lambda n: "add" if n < 1000 else "sub",
        lambda n: None if n < 1000 else 1,
        lambda n: n if n < 1000 else float(n),
        lambda n: 64 if n < 1000 else 128,
        lambda n: 5 * n if n < 1000 else 5 * n - 64,
        lambda n: n % 1000,
        lambda n: 2.0 if n < 1000 else float("nan"),
    ],
)
def test_numbers_that_do_otherwise_do_not(law: Callable[[int], Any]) -> None:
    assert not continues(at_sizes(law), SIZES)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_any_affine_integer_continues(slope: int, start: int) -> None:
    assert continues([slope * size + start for size in SIZES], SIZES)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.sampled_from([1, -1]))
def test_integers_beyond_what_rounding_explains_do_not(slope: int, more: int, sign: int) -> None:
    off = sign * (32 * slope + 2 * more + 1)
    assert not continues([slope * 8, slope * 16, slope * 4096 + off], SIZES)


@given(st.lists(st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.text()), min_size=3, max_size=3))
def test_hostile_values_raise_nothing(values: list[Any]) -> None:
    assert continues(values, SIZES) in (True, False)


def view(storage: int, rows: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "view", "storage": storage, "dtype": "float32", "shape": [rows, 4], "strides": [4, 1], "offset": 0, **more,
    }  # fmt: skip


def plain(value: Any) -> dict[str, Any]:
    return {"kind": "plain", "value": value}


def honest(rows: int, first: int = FIRST_OWN) -> dict[str, Any]:
    out, other = view(first, rows), view(first + 1, rows)
    return {
        "kind": "trace",
        "structure": "a tensor",
        "commands": [
            {"kind": "upload", "storage": first + 9, "start": 0, "size": 16},
            {"kind": "operate", "name": "empty_like", "overload": "default", "arguments": [view(0, rows)], "results": [out]},
            {"kind": "operate", "name": "empty_like", "overload": "default", "arguments": [view(0, rows)], "results": [other]},
            {"kind": "launch", "kernel": 0, "grid": [ceil_div(rows, 4), 1, 1], "line": 3, "arguments": {
                "x": view(0, rows), "w": view(FIRST_WEIGHT, 4), "out": out, "n": plain(4 * rows), "BLOCK": plain(64),
                "sizes": {"kind": "sequence", "items": [plain(rows), plain(4)]}, "f": {"kind": "kernel", "kernel": 3},
                "t": {"kind": "dtype", "name": "fp32"},
                "d": {"kind": "descriptor", "base": out, "shape": [rows, 4], "strides": [4, 1], "block_shape": [8, 4]},
            }},
            {"kind": "launch", "kernel": 1, "grid": [rows, 1, 1], "line": 4, "arguments": {"x": out, "out": other}},
            {"kind": "free", "storages": [first + 7] * (rows % 3)},
        ],
        "outputs": [{"view": other}, {"view": out}],
    }  # fmt: skip


def trace(raw: dict[str, Any]) -> TraceAnswer:
    answer = TRACING_ANSWER.validate_python(raw)
    assert isinstance(answer, TraceAnswer)
    return answer


def found(change: Callable[[dict[str, Any]], None]) -> str | None:
    """Return the break after a change of the program at the large size alone."""
    programs = [honest(size, FIRST_OWN + 20 * index) for index, size in enumerate(SIZES)]
    change(programs[2])
    return first_break([trace(raw) for raw in programs], SIZES)


def test_the_same_program_continues_whatever_the_numbers_of_its_storages() -> None:
    assert found(lambda raw: None) is None


def launch(raw: dict[str, Any], index: int = 3) -> dict[str, Any]:
    return raw["commands"][index]


BREAKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "launch 3 x storage": lambda raw: launch(raw)["arguments"]["x"].update(storage=1),
    "launch 3 w storage": lambda raw: launch(raw)["arguments"]["w"].update(storage=FIRST_WEIGHT + 1),
    "launch 3 w offset": lambda raw: launch(raw)["arguments"]["w"].update(offset=4),
    "launch 3 w shape": lambda raw: launch(raw)["arguments"]["w"].update(shape=[3, 4]),
    "launch 3 w stride": lambda raw: launch(raw)["arguments"]["w"].update(strides=[1, 4]),
    "launch 3 x dtype": lambda raw: launch(raw)["arguments"]["x"].update(dtype="int32"),
    "launch 4 out storage": lambda raw: launch(raw, 4)["arguments"].update(out=raw["commands"][1]["results"][0]),
    "launch 4 x storage": lambda raw: launch(raw, 4)["arguments"].update(x=view(0, SIZES[2])),
    "launch 3 n": lambda raw: launch(raw)["arguments"].update(n=plain(64)),
    "launch 3 BLOCK": lambda raw: launch(raw)["arguments"].update(BLOCK=plain(128)),
    "launch 3 sizes item": lambda raw: launch(raw)["arguments"]["sizes"].update(items=[plain(9), plain(4)]),
    "launch 3 f kernel": lambda raw: launch(raw)["arguments"]["f"].update(kernel=4),
    "launch 3 t dtype": lambda raw: launch(raw)["arguments"]["t"].update(name="fp16"),
    "launch 3 d descriptor": lambda raw: launch(raw)["arguments"]["d"].update(shape=[9, 4]),
    "launch 3 kernel": lambda raw: launch(raw).update(kernel=2),
    "launch 3 grid": lambda raw: launch(raw).update(grid=[99, 1, 1]),
    "upload 0 size": lambda raw: raw["commands"][0].update(size=32),
    "operator 1 name": lambda raw: raw["commands"][1].update(name="zeros_like"),
    "output 0 storage": lambda raw: raw["outputs"].reverse(),
    "output 0 type": lambda raw: raw["outputs"].insert(0, {"type": "int"}),
    "launch 4 kernel": lambda raw: raw["commands"].insert(4, dict(launch(raw), kernel=2)),
    "end": lambda raw: raw["outputs"].pop(),
}


@pytest.mark.parametrize("place", BREAKS)
def test_each_change_at_the_large_size_alone_is_found_in_its_place(place: str) -> None:
    assert found(BREAKS[place]) == place


CONSTANT = FIRST_OWN + 500


def with_constant(rows: int, first: int, storage: int = CONSTANT, uploads: bool = False) -> dict[str, Any]:
    """Return the honest program with a constant as an argument, which it uploads or has from an earlier call."""
    raw = honest(rows, first)
    launch(raw)["arguments"]["constant"] = view(storage, 1)
    if uploads:
        raw["commands"].insert(1, {"kind": "upload", "storage": storage, "start": 0, "size": 16})
    return raw


def break_of(*programs: dict[str, Any]) -> str | None:
    return first_break([trace(raw) for raw in programs], SIZES)


def test_a_constant_uploaded_in_the_first_call_only_continues() -> None:
    later = [with_constant(size, FIRST_OWN + 20 * index) for index, size in enumerate(SIZES) if index]
    assert break_of(with_constant(SIZES[0], FIRST_OWN, uploads=True), *later) is None
    assert break_of(with_constant(SIZES[0], FIRST_OWN), *later) is None


def transposed(rows: int, first: int, does_fill: bool = False) -> dict[str, Any]:
    """Return the program with a kept constant that an operator makes, or changes in place."""
    raw = with_constant(rows, first)
    results, arguments = [view(CONSTANT, 4)], [view(CONSTANT, 4) if does_fill else view(FIRST_WEIGHT, 4)]
    name = "fill_" if does_fill else "clone"
    operator = {"kind": "operate", "name": name, "overload": "default", "arguments": arguments, "results": results}
    raw["commands"].insert(1, operator)
    return raw


def test_a_weight_transposed_in_the_first_call_only_continues() -> None:
    later = [with_constant(size, FIRST_OWN + 20 * index) for index, size in enumerate(SIZES) if index]
    assert break_of(transposed(SIZES[0], FIRST_OWN), *later) is None


def test_a_kept_storage_that_is_changed_at_the_large_size_alone_is_found() -> None:
    small = [with_constant(size, FIRST_OWN + 20 * index) for index, size in enumerate(SIZES[:2])]
    assert break_of(*small, transposed(SIZES[2], FIRST_OWN + 40, does_fill=True)) == "operator 1 name"


def test_another_constant_at_the_large_size_is_found_whether_kept_or_uploaded() -> None:
    small = [with_constant(SIZES[0], FIRST_OWN, uploads=True), with_constant(SIZES[1], FIRST_OWN + 20)]
    kept = with_constant(SIZES[2], FIRST_OWN + 40, CONSTANT + 1)
    assert break_of(*small, kept) == "launch 3 constant storage"
    uploaded = with_constant(SIZES[2], FIRST_OWN + 40, CONSTANT + 1, uploads=True)
    assert break_of(*small, uploaded) == "operator 1 name"


def test_an_output_that_no_kernel_wrote_is_found() -> None:
    def fresh(raw: dict[str, Any]) -> None:
        raw["outputs"][0] = {"view": view(FIRST_OWN + 99, SIZES[2])}

    assert found(fresh) == "output 0 storage"


@pytest.mark.parametrize(
    ("grids", "is_continued"),
    [
        ((2, 4, 1024), True),
        ((1, 1, 64), True),  # one program holds more rows than either small size
        ((1, 1, 1), True),
        ((1, 1, 256), True),
        ((1, 1, 257), False),
        ((2, 4, 132), False),  # persistent programs
        ((4, 4, 3), False),
    ],
)
def test_grids_may_begin_with_one_program(grids: tuple[int, int, int], is_continued: bool) -> None:
    programs = [honest(size) for size in SIZES]
    for raw, programs_of in zip(programs, grids, strict=True):
        launch(raw)["grid"] = [programs_of, 1, 1]
    assert (first_break([trace(raw) for raw in programs], SIZES) is None) is is_continued
