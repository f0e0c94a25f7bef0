"""Interpreter process: runs the inline assembly of a kernel, PTX that computes registers from registers.

There is no memory, no branch and no exchange between lanes: what else a kernel writes raises UnknownInstructionError.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernels_eval.interpreter import ptx_instructions as instructions
from kernels_eval.interpreter.ptx_instructions import COMPARISONS, FLOATS, INTEGERS, TYPES, Array

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"[%$\w]+")
_OPERAND = re.compile(r"\s*(\{[^{}]*\}|[^,]+)")
_PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
_OF_BITS = frozenset({"and", "or", "xor", "not", "shl", "shr", "lop3", "prmt", "popc", "clz", "brev"})
_ROUNDED_OTHERWISE = frozenset({"rz", "rm", "rp"})
_HINTS = frozenset({"rn", "approx", "full", "ftz", "sat", "rni", "rzi", "rmi", "rpi", "rna", "lo", "hi", "wide", "NaN"})
"""Modifiers that are understood, beside types and comparisons."""


class UnknownInstructionError(NotImplementedError):
    """Assembly that is not interpreted; the message has the statement, and what to write instead."""

    def __init__(self, statement: str) -> None:
        super().__init__(
            f"inline assembly `{statement}` is not carried out without a GPU: of PTX only arithmetic between registers"
            " is; write it with triton.language or libdevice"
        )


class Assembly:
    """A text of PTX, run once for all lanes; `registers` has the bits of each register by name."""

    def __init__(self, text: str, registers: dict[str, Array], count: Callable[[str, bool], None]) -> None:
        self.registers = registers
        self._count = count
        self._lanes = max((each.size for each in registers.values()), default=1)
        self._declared: set[str] = set()
        for statement in _statements(text):
            with np.errstate(all="ignore"):
                self._run(statement)

    def _run(self, statement: str) -> None:
        if statement.startswith(".reg"):
            names = statement.split(None, 2)[-1]
            self._declared.update(_declarations(names))
            return
        lanes: Array | bool = True
        code = statement
        if code.startswith("@"):
            predicate, _, code = code[1:].partition(" ")
            lanes = self._bits(predicate.lstrip("!"), statement).astype(bool) ^ predicate.startswith("!")
        opcode, _, rest = code.strip().partition(" ")
        operands = [operand.strip() for operand in _OPERAND.findall(rest)]
        parts = opcode.split(".")
        if len(operands) < 2 or _ROUNDED_OTHERWISE & set(parts):
            raise UnknownInstructionError(statement)
        known = TYPES.keys() | _PACKED.keys() | COMPARISONS.keys() | _HINTS
        if not set(parts[1:]) <= known:
            raise UnknownInstructionError(statement)
        try:
            result = self._result(parts, operands, statement)
        except (KeyError, TypeError, IndexError) as error:
            raise UnknownInstructionError(statement) from error
        self._write(operands[0], result, lanes, statement)

    def _result(self, parts: list[str], operands: list[str], statement: str) -> Array:
        name, modifiers = parts[0], parts[1:]
        types = [part for part in modifiers if part in TYPES or part in _PACKED]
        kind = types[-1]
        self._count(name, kind == "f64")
        if name == "mov":
            return self._moved(kind, operands[1], statement)
        if name == "cvt":
            return self._converted(modifiers, types, operands[1:], statement)
        if name == "selp":
            first, second = (self._read(each, kind, statement) for each in operands[1:3])
            return np.where(self._bits(operands[3], statement).astype(bool), first, second)
        if name == "setp":
            compare = COMPARISONS[next(part for part in modifiers if part in COMPARISONS)]
            return np.asarray(compare(*self._values(operands[1:3], kind, modifiers, statement)), dtype=bool)
        if kind[0] != "f":
            return self._integers(name, kind, modifiers, operands[1:], statement)
        result = FLOATS[name](*self._values(operands[1:], kind, modifiers, statement)).astype(TYPES[kind])
        if "NaN" in modifiers:
            inputs = self._values(operands[1:], kind, modifiers, statement)
            result = np.where(np.isnan(inputs[0]) | np.isnan(inputs[1]), np.nan, result).astype(TYPES[kind])
        if "sat" in modifiers:
            result = np.clip(np.nan_to_num(result, nan=0.0), 0, 1).astype(TYPES[kind])
        return instructions.flushed(result) if "ftz" in modifiers and kind == "f32" else result

    def _integers(self, name: str, kind: str, modifiers: list[str], operands: list[str], statement: str) -> Array:
        if kind not in TYPES or kind in ("bf16", "tf32") or "sat" in modifiers:
            raise UnknownInstructionError(statement)
        if name in ("mul", "mad"):
            part = next(part for part in ("lo", "hi", "wide") if part in modifiers)
            product = instructions.multiplied(part, *self._values(operands[:2], kind, [], statement))
            if name == "mul":
                return product
            wide = {"lo": kind, "hi": kind, "wide": kind[0] + str(product.dtype.itemsize * 8)}[part]
            return product + self._read(operands[2], wide, statement)
        if kind[0] == "b" and name not in _OF_BITS:
            raise UnknownInstructionError(statement)
        if kind == "pred" and name == "not":
            return ~self._read(operands[0], kind, statement)
        last = "u32" if name in ("shl", "shr") else kind
        values = self._values(operands[:-1], kind, [], statement)
        return INTEGERS[name](*values, self._read(operands[-1], last, statement))

    def _moved(self, kind: str, source: str, statement: str) -> Array:
        if not source.startswith("{"):
            return self._read(source, kind, statement)
        parts = [self._bits(each.strip(), statement) for each in source.strip("{}").split(",")]
        whole = np.dtype(TYPES[kind])
        width = whole.itemsize // len(parts)
        result = np.zeros(self._lanes, f"u{whole.itemsize}")
        for place, part in enumerate(parts):
            low = part.view(f"u{part.dtype.itemsize}").astype(f"u{width}").astype(result.dtype)
            result |= low << result.dtype.type(8 * width * place)
        return result

    def _converted(self, modifiers: list[str], types: list[str], operands: list[str], statement: str) -> Array:
        target, source = types
        if target not in _PACKED:
            values = self._values(operands, source, modifiers, statement)[0]
            result = instructions.converted(modifiers, target, source, values)
            return instructions.flushed(result) if "ftz" in modifiers and target == "f32" else result
        high, low = (
            instructions.converted(modifiers, _PACKED[target], source, self._read(each, source, statement))
            for each in operands
        )
        return high.view(np.uint16).astype(np.uint32) << np.uint32(16) | low.view(np.uint16)

    def _values(self, operands: list[str], kind: str, modifiers: list[str], statement: str) -> list[Array]:
        values = [self._read(each, kind, statement) for each in operands]
        return [instructions.flushed(each) for each in values] if "ftz" in modifiers and kind == "f32" else values

    def _read(self, operand: str, kind: str, statement: str) -> Array:
        """Return an operand as numbers of a type: a register's low bits, or a literal."""
        wanted = np.dtype(TYPES[kind])
        is_name = operand in self.registers or operand in self._declared  # such as `inf`
        literal = None if is_name else _literal(operand, wanted)
        if literal is not None:
            return np.full(self._lanes, literal, wanted)
        bits = self._bits(operand, statement)
        if wanted == np.bool_ or bits.dtype == np.bool_:
            return bits.astype(wanted)
        if bits.dtype.itemsize > wanted.itemsize:
            bits = bits.view(f"u{bits.dtype.itemsize}").astype(f"u{wanted.itemsize}")
        elif bits.dtype.itemsize < wanted.itemsize:
            raise TypeError(operand)
        return bits.view(wanted)

    def _bits(self, name: str, statement: str) -> Array:
        if name not in self.registers:
            raise UnknownInstructionError(statement)
        return self.registers[name]

    def _write(self, target: str, result: Array, lanes: Array | bool, statement: str) -> None:
        result = np.broadcast_to(result, self._lanes)
        if target.startswith("{"):
            names = [name.strip() for name in target.strip("{}").split(",")]
            width = result.dtype.itemsize // len(names)
            whole = result.view(f"u{result.dtype.itemsize}")
            for place, name in enumerate(names):
                part = (whole >> whole.dtype.type(8 * width * place)).astype(f"u{width}")
                self._write(name, part, lanes, statement)
            return
        if not _NAME.fullmatch(target) or (target[0] != "$" and target not in self._declared):
            raise UnknownInstructionError(statement)
        if lanes is not True:
            result = np.where(lanes, result, self._held(target, result))
        self.registers[target] = np.ascontiguousarray(result)

    def _held(self, name: str, result: Array) -> Array:
        """Return bits of a register, in lanes whose predicate is false: others than the result's if it had none."""
        dtype = result.dtype
        if name not in self.registers:
            return ~result if dtype == np.bool_ else (~result.view(f"u{dtype.itemsize}")).view(dtype)
        held = self.registers[name]
        return held.view(dtype) if held.dtype.itemsize == np.dtype(dtype).itemsize else held.astype(dtype)


def _statements(text: str) -> Iterator[str]:
    for part in _COMMENT.sub(" ", text).split(";"):
        statement = " ".join(part.split())
        while statement[:1] in ("{", "}"):  # a block of declarations, not a vector: those are never first
            statement = statement[1:].strip()
        if statement:
            yield statement


def _declarations(names: str) -> Iterator[str]:
    """Yield the registers of a declaration such as `a, b<3>`: a, b0, b1, b2."""
    for name in (each.strip() for each in names.split(",")):
        family, _, count = name.partition("<")
        if count:
            yield from (f"{family}{number}" for number in range(min(int(count.rstrip("> ")), 256)))
        else:
            yield name


def _literal(operand: str, wanted: Any) -> Any:
    """Return a literal's value in a type, or None for a register."""
    if operand[:2] in ("0f", "0F", "0d", "0D"):
        value = np.array(int(operand[2:], 16), f"u{4 if operand[1] in 'fF' else 8}")
        number = value.view(f"f{value.dtype.itemsize}")
        return number.astype(wanted) if wanted.kind == "f" else value.astype(wanted)
    try:
        if wanted.kind == "f":
            return float(operand)
        number = int(operand.rstrip("uU"), 0)
    except ValueError:
        return None
    return np.array(number & ((1 << 8 * wanted.itemsize) - 1), f"u{wanted.itemsize}").view(wanted)[()]
