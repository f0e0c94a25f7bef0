"""Interpreter process: cheaper bookkeeping of Triton's types, which takes more of a small kernel's time than NumPy.

Upstream computes some properties again in each operation: the shape of a block as compile-time constants, its name, and
whether it must be broadcast, even to the shape that it has already. Here they are cached, or computed on first use.
Values and types stay the same.
"""

from dataclasses import dataclass
from typing import Any

import triton.language as tl

from kernels_eval.interpreter.triton_patches.names import language, semantic

_UNPROMOTED = (tl.float32, tl.float64, tl.int32, tl.int64)
"""Types that two operands of the same type keep in every operation."""


@dataclass(frozen=True)
class _Shape:
    """Properties of one shape.

    `own`: Triton's tuple of its sizes, a single object for each shape: shapes are compared by identity.
    """

    own: Any
    sizes: tuple[int, ...]
    numel: int
    constants: Any
    """The sizes as compile-time constants, the form that a tensor has them in."""
    constant_numel: Any


_shapes: dict[tuple[int, ...], _Shape] = {}
_shapes_by_identity: dict[int, _Shape] = {}
"""By the identity of `own`, which is never freed."""
_check_shape: Any = language.validate_block_shape
_check_operands: Any = semantic.binary_op_type_checking_impl
_broadcast: Any = semantic.broadcast_impl_value


def install() -> None:
    """Patch Triton in this process. Call it once, before anything is interpreted."""
    language.constexpr.__init__ = _new_constexpr
    language.constexpr.type = property(lambda self: language.constexpr_type(self.value))
    language.block_type.__init__ = _new_block_type
    language.block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>")
    language.tensor.__init__ = _new_tensor
    semantic.binary_op_type_checking_impl = _checked_operands
    semantic.broadcast_impl_value = _broadcasted


def _new_constexpr(self: Any, value: Any) -> None:
    while isinstance(value, language.constexpr):
        value = value.value
    self.value = value


def _shape(shape: Any) -> _Shape:
    """Return a shape, cached or new; raises Triton's own error for an invalid one."""
    known = _shapes_by_identity.get(id(shape))
    if known is not None:
        return known
    sizes = tuple(language._unwrap_shape(shape))
    known = _shapes.get(sizes)
    if known is None:
        numel = _check_shape(sizes)
        constants = language.tuple([language.constexpr(size) for size in sizes])
        known = _Shape(language.tuple(sizes), sizes, numel, constants, language.constexpr(numel))
        _shapes[sizes] = _shapes_by_identity[id(known.own)] = known
    return known


def _new_block_type(self: Any, element_ty: Any, shape: Any) -> None:
    known = _shape(shape)
    if not known.sizes:
        raise TypeError("0d block_type is forbidden")
    self.element_ty = element_ty
    self.shape = known.own
    self.numel = known.numel


def _new_tensor(self: Any, handle: Any, type: Any) -> None:
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    known = _shape(type.shape if type.is_block() else ())
    self.shape, self.numel = known.constants, known.constant_numel


def _checked_operands(self: Any, lhs: Any, rhs: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(lhs, tl.tensor) and isinstance(rhs, tl.tensor):
        one: Any = lhs.type
        other: Any = rhs.type
        if one.scalar is other.scalar and one.scalar in _UNPROMOTED and _are_alike(one, other):
            return lhs, rhs
    return _check_operands(self, lhs, rhs, *args, **kwargs)


def _are_alike(one: Any, other: Any) -> bool:
    if one.is_block():
        return other.is_block() and one.shape is other.shape
    return not other.is_block()


def _broadcasted(self: Any, lhs: Any, rhs: Any) -> Any:
    if lhs.type.is_block() and rhs.type.is_block() and lhs.type.shape is rhs.type.shape:
        return lhs, rhs
    return _broadcast(self, lhs, rhs)
