"""Inline assembly in the interpreter: each instruction against Python's own numbers, and one sentence on the others."""

import math
import struct
from typing import Any

import numpy as np
import pytest

from kernels_eval.interpreter.ptx import UnknownInstructionError
from kernels_eval.interpreter.triton_patches.inline_asm import run

FLOATS = np.array([-3.75, -1.0, -0.0, 0.4, 1.0, 2.5, 17.0, 1e-3], np.float32)
POSITIVE = np.array([0.4, 1.0, 2.5, 17.0, 1e-3, 9.0, 1e10, 3.0], np.float32)
WHOLE = np.array([-7, -1, 0, 1, 6, 255, 2**31 - 1, -(2**31)], np.int32)


def one(text: str, *arrays: np.ndarray[Any, Any], wanted: Any = np.float32, pack: int = 1) -> np.ndarray[Any, Any]:
    """Return the only result of assembly whose elements each take a register."""
    constraints = ",".join(["=r"] * pack + ["r"] * pack * len(arrays))
    return run(text, constraints, list(arrays), [np.dtype(wanted)], pack)[0]


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("ex2.approx.ftz.f32 $0, $1;", lambda v: 2.0**v),
        ("lg2.approx.f32 $0, $1;", math.log2),
        ("rcp.approx.ftz.f32 $0, $1;", lambda v: 1 / v),
        ("sqrt.rn.f32 $0, $1;", math.sqrt),
        ("rsqrt.approx.f32 $0, $1;", lambda v: 1 / math.sqrt(v)),
        ("sin.approx.f32 $0, $1;", math.sin),
        ("cos.approx.f32 $0, $1;", math.cos),
        ("fma.rn.f32 $0, $1, $1, 0f3F800000;", lambda v: v * v + 1),
        ("{ .reg .f32 t; mul.f32 t, $1, 0.5; sub.f32 $0, t, 2.0; }", lambda v: v * 0.5 - 2),
        ("div.full.f32 $0, 1.0, $1; // a comment; not a statement", lambda v: 1 / v),
    ],
)
def test_functions_of_floats(text: str, function: Any) -> None:
    given = np.minimum(POSITIVE, np.float32(20))
    expected = [function(float(value)) for value in given]
    assert one(text, given) == pytest.approx(expected, rel=1e-6)


def test_minimum_maximum_and_signs() -> None:
    other = FLOATS[::-1].copy()
    assert one("max.f32 $0, $1, $2;", FLOATS, other).tolist() == [max(pair) for pair in zip(FLOATS, other, strict=True)]
    assert one("min.f32 $0, $1, 0f7FC00000;", FLOATS).tolist() == FLOATS.tolist()  # of NaN and a number: the number
    assert np.isnan(one("min.NaN.f32 $0, $1, 0f7FC00000;", FLOATS)).all()
    assert one("abs.f32 $0, $1;", FLOATS).tolist() == [abs(value) for value in FLOATS.tolist()]
    assert np.signbit(one("neg.f32 $0, $1;", FLOATS)).tolist() == (~np.signbit(FLOATS)).tolist()
    assert one("add.sat.f32 $0, $1, 0.0;", FLOATS).tolist() == [min(max(v, 0), 1) for v in FLOATS.tolist()]


def test_the_hyperbolic_tangent_has_eleven_bits() -> None:
    exact = np.tanh(FLOATS.astype(np.float64))
    found = one("tanh.approx.f32 $0, $1;", FLOATS).astype(np.float64)
    error = np.abs(found - exact)[exact != 0] / np.abs(exact[exact != 0])
    assert error.max() <= 2.0**-11 * 1.001
    assert error.max() > 1e-5


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("add.s32 $0, $1, 5;", lambda v: v + 5),
        ("mul.lo.u32 $0, $1, 3;", lambda v: v * 3),
        ("mul.hi.s32 $0, $1, 1000;", lambda v: (v * 1000) >> 32),
        ("mad.lo.s32 $0, $1, 3, $1;", lambda v: v * 4),
        ("and.b32 $0, $1, 0xFF;", lambda v: v & 0xFF),
        ("not.b32 $0, $1;", lambda v: ~v),
        ("shl.b32 $0, $1, 4;", lambda v: v << 4),
        ("shr.s32 $0, $1, 40;", lambda v: v >> 40),
        ("shr.u32 $0, $1, 3;", lambda v: (v & 0xFFFFFFFF) >> 3),
        ("popc.b32 $0, $1;", lambda v: (v & 0xFFFFFFFF).bit_count()),
        ("clz.b32 $0, $1;", lambda v: 32 - (v & 0xFFFFFFFF).bit_length()),
        ("brev.b32 $0, $1;", lambda v: int(f"{v & 0xFFFFFFFF:032b}"[::-1], 2)),
        ("lop3.b32 $0, $1, 0x0F0F0F0F, 0x33333333, 0xE8;",
         lambda v: (v & 0x0F0F0F0F) | (v & 0x33333333) | (0x0F0F0F0F & 0x33333333)),
        ("prmt.b32 $0, $1, 0, 0x4401;", lambda v: (v >> 8 & 0xFF) | (v & 0xFF) << 8),
        ("{ .reg .pred p; setp.lt.s32 p, $1, 0; selp.b32 $0, 7, 9, p; }", lambda v: 7 if v < 0 else 9),
        ("{ .reg .pred p; setp.ge.s32 p, $1, 1; mov.b32 $0, 2; @!p mov.b32 $0, 3; }", lambda v: 2 if v >= 1 else 3),
        ("{ .reg .u8 b; cvt.sat.u8.s32 b, $1; cvt.u32.u8 $0, b; }", lambda v: min(max(v, 0), 255)),
        ("{ .reg .b16 h<2>; mov.b32 {h0, h1}, $1; mov.b32 $0, {h1, h0}; }",
         lambda v: (v >> 16 & 0xFFFF) | (v & 0xFFFF) << 16),
    ],
)  # fmt: skip
def test_integers_and_bits(text: str, function: Any) -> None:
    expected = np.array([function(int(value)) & 0xFFFFFFFF for value in WHOLE], np.uint32)
    assert one(text, WHOLE, wanted=np.uint32).tolist() == expected.tolist()


def test_conversions() -> None:
    assert one("cvt.rzi.s32.f32 $0, $1;", FLOATS, wanted=np.int32).tolist() == [int(v) for v in FLOATS.tolist()]
    assert one("cvt.rn.f32.s32 $0, $1;", WHOLE).tolist() == WHOLE.astype(np.float32).tolist()
    assert one("cvt.rni.s32.f32 $0, 0f4F800000;", wanted=np.int32).tolist() == [2**31 - 1]  # saturates
    packed = one("cvt.rn.bf16x2.f32 $0, $1, 1.0;", FLOATS, wanted=np.uint32)
    high = [struct.unpack(">f", struct.pack(">I", bits & 0xFFFF0000))[0] for bits in packed.tolist()]
    assert high == pytest.approx(FLOATS.tolist(), rel=2.0**-8)
    assert {bits & 0xFFFF for bits in packed.tolist()} == {0x3F80}
    assert one("{ .reg .b16 h; cvt.rn.f16.f32 h, $1; cvt.f32.f16 $0, h; }", FLOATS).tolist() == (
        FLOATS.astype(np.float16).astype(np.float32).tolist()
    )
    tf32 = one("cvt.rna.tf32.f32 $0, $1;", FLOATS)
    assert (tf32.view(np.uint32) & 0x1FFF).tolist() == [0] * len(FLOATS)
    assert tf32 == pytest.approx(FLOATS, rel=2.0**-11)


def test_a_name_that_is_a_number_in_python_is_a_register() -> None:
    text = "{ .reg .f32 inf; mov.f32 inf, $1; add.f32 $0, inf, 1.0; }"
    assert one(text, FLOATS).tolist() == (FLOATS + np.float32(1)).tolist()


def test_a_result_may_begin_as_an_argument() -> None:
    text = "{ .reg .pred p; setp.lt.f32 p, $1, 0.0; @p mov.f32 $0, 5.0; }"
    found = run(text, "=f,0", [FLOATS], [np.dtype(np.float32)], 1)[0]
    assert found.tolist() == np.where(FLOATS < 0, np.float32(5), FLOATS).tolist()


def test_lanes_that_a_predicate_leaves_out_hold_no_result() -> None:
    found = one("{ .reg .pred p; setp.lt.f32 p, $1, 0.0; @p mov.f32 $0, 5.0; }", FLOATS)
    assert ((found == 5) == (FLOATS < 0)).all()


def test_small_elements_share_a_register_and_the_last_pack_is_filled() -> None:
    """The example of Triton's own documentation: bytes to integers, and the larger of those and a float."""
    text = """
    {
        // Unpack `a` into `ai`.
        .reg .b8 tmp<4>;
        mov.b32 {tmp0, tmp1, tmp2, tmp3}, $8;
        cvt.u32.u8 $0, tmp0;
        cvt.u32.u8 $1, tmp1;
        cvt.u32.u8 $2, tmp2;
        cvt.u32.u8 $3, tmp3;
    }
    cvt.rn.f32.s32 $4, $0;
    cvt.rn.f32.s32 $5, $1;
    cvt.rn.f32.s32 $6, $2;
    cvt.rn.f32.s32 $7, $3;
    max.f32 $4, $4, $9;
    max.f32 $5, $5, $10;
    max.f32 $6, $6, $11;
    max.f32 $7, $7, $12;
    """
    given = np.array([3, 200, 7, 0, 9, 255], np.uint8)
    other = np.array([4.5, 1.0, 7.5, -1.0, 0.0, 300.0], np.float32)
    constraints = "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r"
    whole, larger = run(text, constraints, [given, other], [np.dtype(np.int32), np.dtype(np.float32)], 4)
    assert whole.tolist() == given.tolist()
    assert larger.tolist() == [max(pair) for pair in zip(given.tolist(), other.tolist(), strict=True)]


@pytest.mark.parametrize(
    "text",
    [
        "ld.global.f32 $0, [$1];", "mov.u32 $0, %laneid;", "bar.sync 0;", "add.rz.f32 $0, $1, $1;",
        "shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "add.f32 undeclared, $1, $1;", "fma.rn.f16x2 $0, $1, $1, $1;",
        "mov.b64 $0, $1;", "bra done;", "add.sat.s32 $0, $1, 1;", "cvt.rn.tf32.f32 $0, $1;",
    ],
)  # fmt: skip
def test_what_is_not_carried_out_is_named(text: str) -> None:
    with pytest.raises(UnknownInstructionError, match=r"inline assembly `.*` is not carried out without a GPU") as told:
        one(text, FLOATS)
    assert text.rstrip(";") in str(told.value)


def test_registers_are_counted_and_have_to_be_written() -> None:
    with pytest.raises(ValueError, match=r"1 constraints for 1 registers of results and 1 of arguments \(pack=1\)"):
        run("mov.b32 $0, $1;", "=r", [FLOATS], [np.dtype(np.float32)], 1)
    with pytest.raises(ValueError, match=r"nothing is written to \$0"):
        one("{ .reg .b32 t; mov.b32 t, $1; }", FLOATS)
