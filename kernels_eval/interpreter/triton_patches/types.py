"""Interpreter process: cheaper bookkeeping of Triton's types, which takes more of a small kernel's time than NumPy.

Upstream computes some properties again in each operation: the shape of a block as compile-time constants, its name, and
whether it must be broadcast, even to the shape that it has already. It decides anew how a constant is promoted, makes
that constant twice, and converts types to IR that an interpreter has no use for. Here these are cached, or left out
where the outcome is known. Values and types stay the same.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from kernels_eval.interpreter.load_turns import deepened
from kernels_eval.interpreter.own_stores import OWN_STORES
from kernels_eval.interpreter.triton_patches.batch_handle import BatchHandle, spread
from kernels_eval.interpreter.triton_patches.names import language, semantic, upstream

_UNPROMOTED = {"fp32": float, "fp64": float, "int32": int, "int64": int}
"""Names of the types that two operands of the same type keep in every operation, and the kind of their constants."""
_OPERATORS: dict[str, Callable[..., Any]] = {
    f"__{name.strip('_')}__": getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift", "and_", "or_", "xor",
                 "lt", "le", "gt", "ge", "eq", "ne")
}  # fmt: skip
"""Methods of a compile-time constant that take a second operand."""
_REFLECTED: dict[str, Callable[..., Any]] = {
    f"__r{name.strip('_')}__": getattr(operator, name) for name in ("mod", "lshift", "rshift", "and_", "or_", "xor")
}
"""Methods that Triton's constants lack: compiled, the number on the left is a constant as well."""
_LEAST, _MOST = -(2**31), 2**31 - 1
"""Whole numbers that are 32-bit constants to Triton."""
_PLAIN = frozenset(
    (int, float, bool, str, type(None), language.dtype, language.pointer_type, language.block_type, language.tensor)
)
"""Types whose values are neither compile-time constants nor hold any."""


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
_unwrap: Any = language._unwrap_if_constexpr
_equal_types: Any = language.dtype.__eq__
_blocks: dict[tuple[int, int], tuple[Any, Any]] = {}
"""Type of an element, kept so that its identity stays its own, and type of a block, by identities of element and
shape. All have been converted to IR once."""
_MOST_BLOCKS = 4096
_constants: dict[tuple[int | float, str, int], tuple[Any, Any, Any]] = {}
"""Values, type of an element and type of the block, by number, name of the type and identity of the shape."""
_MOST_CONSTANTS, _MOST_SHARED = 256, 4096
_expand: Any = upstream.InterpreterBuilder.create_expand_dims
_fill: Any = upstream.InterpreterBuilder.create_splat
_check_handle: Any = upstream.TensorHandle.__post_init__


def install() -> None:
    """Patch Triton in this process. Call it once, before anything is interpreted."""
    language.constexpr.__init__ = _new_constexpr
    language.constexpr.type = property(lambda self: language.constexpr_type(self.value))
    for name, compute in _OPERATORS.items():
        setattr(language.constexpr, name, _with_tensors(getattr(language.constexpr, name), compute))
    for name, compute in _REFLECTED.items():
        setattr(language.constexpr, name, _reflected(compute))
    language.block_type.__init__ = _new_block_type
    language.block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>")
    language.tensor.__init__ = _new_tensor
    upstream.TensorHandle.__init__ = _new_handle
    semantic.binary_op_type_checking_impl = _checked_operands
    semantic.broadcast_impl_value = _broadcasted
    language._unwrap_if_constexpr = _unwrapped
    upstream.InterpreterBuilder.create_expand_dims = _expanded
    upstream.InterpreterBuilder.create_splat = _splatted
    language.dtype.__eq__ = _equal


def _new_constexpr(self: Any, value: Any) -> None:
    while isinstance(value, language.constexpr):
        value = value.value
    self.value = value


def _with_tensors(on_constants: Callable[..., Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator of a constant on the left. With a tensor on the right the result is a tensor, as compiled."""

    def computed(self: Any, other: Any) -> Any:
        return compute(self.value, other) if isinstance(other, _Tensor) else on_constants(self, other)

    return computed


def _reflected(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator of a constant on the right, whose left operand is a number."""
    return lambda self, other: language.constexpr(compute(other, self.value))


def _shape(shape: Any) -> _Shape:
    """Return a shape, cached or new; raises Triton's own error for an invalid one."""
    known = _shapes_by_identity.get(id(shape))
    if known is not None:
        return known
    is_plain = type(shape) in (tuple, list) and all(type(size) is int for size in shape)
    sizes = tuple(shape if is_plain else language._unwrap_shape(shape))
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
    self.known_shape = known


def _new_tensor(self: Any, handle: Any, type: Any) -> None:
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    known = type.known_shape
    self.shape, self.numel = known.constants, known.constant_numel


def _new_handle(self: Any, data: Any, dtype: Any, attr: Any = None) -> None:
    self.data, self.dtype = data, dtype
    self.attr = {} if attr is None else attr
    if type(dtype) is not _Pointer and data.itemsize > 1 and 8 * data.itemsize > dtype.primitive_bitwidth:
        _check_handle(self)  # raises


def _unwrapped(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    return value.value if kind is language.constexpr else _unwrap(value)


def _equal(self: Any, other: Any) -> bool:
    return self is other or _equal_types(self, other)


def _checked_operands(self: Any, lhs: Any, rhs: Any, *args: Any, **kwargs: Any) -> Any:
    on_left, on_right = isinstance(lhs, _Tensor), isinstance(rhs, _Tensor)
    if on_left and on_right:
        if lhs.dtype is rhs.dtype and lhs.dtype.name in _UNPROMOTED:
            return _broadcasted(self, lhs, rhs)
    elif on_left and _takes_its_type(rhs, lhs, *args, **kwargs):
        return lhs, _constant_like(self, rhs, lhs)
    elif on_right and _takes_its_type(lhs, rhs, *args, **kwargs):
        return _constant_like(self, lhs, rhs), rhs
    return _check_operands(self, lhs, rhs, *args, **kwargs)


def _constant_like(self: Any, number: Any, tensor: Any) -> Any:
    """Return a constant in the type and the shape of a tensor. Programs of a launch share its values, read-only."""
    shape = tensor.type.known_shape
    key = number, tensor.dtype.name, id(shape)
    known = _constants.get(key)
    if known is not None:
        return self.tensor(upstream.TensorHandle(known[0], known[1]), known[2])
    made = self.scalar_constant(number, dtype=tensor.dtype)
    if shape is not _SCALAR:
        made = _splat(self, made, shape)
    if made.handle.data.size <= _MOST_SHARED:
        if len(_constants) == _MOST_CONSTANTS:
            _constants.clear()
        made.handle.data.flags.writeable = False
        _constants[key] = made.handle.data, made.handle.dtype, made.type
    return made


def _takes_its_type(
    number: Any,
    tensor: Any,
    allow_lhs_ptr: bool = False,
    allow_rhs_ptr: bool = False,
    arithmetic_check: bool = True,
    div_or_mod: bool = False,
) -> bool:
    """Return True if a constant is known to get a tensor's type. The other arguments are upstream's."""
    kind = _UNPROMOTED.get(tensor.dtype.name)
    if kind is None or not arithmetic_check:
        return False
    return (type(number) is int and _LEAST <= number <= _MOST) or (kind is float and type(number) is float)


def _broadcasted(self: Any, lhs: Any, rhs: Any) -> Any:
    one, other = lhs.type.known_shape, rhs.type.known_shape
    if one is other:
        return lhs, rhs
    if other is _SCALAR:
        return lhs, _splat(self, rhs, one)
    if one is _SCALAR:
        return _splat(self, lhs, other), rhs
    common = _common_sizes(one.sizes, other.sizes)
    if common is not None:
        return _spread(self, lhs, common), _spread(self, rhs, common)
    return _broadcast(self, lhs, rhs)


def _splat(self: Any, value: Any, shape: _Shape) -> Any:
    kind = _block(self, value.type, shape)
    handle = value.handle
    OWN_STORES.spread(handle)
    if type(handle) is BatchHandle:
        return self.tensor(deepened(spread(handle, shape.sizes), (handle,)), kind)
    values = np.empty(shape.sizes, upstream._get_np_dtype(handle.dtype))
    values[...] = handle.data
    return self.tensor(deepened(upstream.TensorHandle(values, handle.dtype.scalar), (handle,)), kind)


def _splatted(self: Any, kind: Any, value: Any) -> Any:
    OWN_STORES.spread(value)
    return _fill(self, kind, value)


def _block(self: Any, element: Any, shape: _Shape) -> Any:
    """Return the type of a block; raises Triton's own error for a type of element that this target lacks."""
    key = id(element), id(shape)
    known = _blocks.get(key)
    if known is None:
        if len(_blocks) == _MOST_BLOCKS:  # a kernel can make types of its own without end
            _blocks.clear()
        element.to_ir(self.builder)
        known = _blocks[key] = element, language.block_type(element, shape.own)
    return known[1]


def _spread(self: Any, value: Any, sizes: tuple[int, ...]) -> Any:
    if value.type.known_shape.sizes == sizes:
        return value
    shape, handle = _shape(sizes), value.handle
    OWN_STORES.spread(handle)
    if type(handle) is BatchHandle:
        return self.tensor(deepened(spread(handle, sizes), (handle,)), _block(self, value.type.scalar, shape))
    if shape.numel > _MOST_SHARED:
        values = np.broadcast_to(handle.data, sizes)
    else:  # of a small block a copy is made faster than a view
        values = np.empty(sizes, handle.data.dtype)
        values[...] = handle.data
    spread_out = deepened(upstream.TensorHandle(values, handle.dtype.scalar), (handle,))
    return self.tensor(spread_out, _block(self, value.type.scalar, shape))


def _expanded(self: Any, value: Any, axis: int) -> Any:
    sizes = value.data.shape
    if 0 <= axis <= len(sizes):
        made = upstream.TensorHandle(value.data.reshape((*sizes[:axis], 1, *sizes[axis:])), value.dtype.scalar)
        return deepened(made, (value,))
    return _expand(self, value, axis)


@lru_cache(maxsize=4096)
def _common_sizes(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the sizes that two blocks of the same rank are broadcast to; None: upstream has to decide."""
    if len(left) != len(right) or any(1 not in pair and pair[0] != pair[1] for pair in zip(left, right, strict=True)):
        return None
    return tuple(second if first == 1 else first for first, second in zip(left, right, strict=True))


_Tensor: Any = language.tensor
_Pointer: Any = language.pointer_type
_SCALAR = _shape(())
# Each type has its shape at hand. That of a block which upstream's `__init__` made is found when it is asked for.
_late: Any = cached_property(lambda self: _shape(self.shape))
_late.__set_name__(language.block_type, "known_shape")
language.dtype.known_shape, language.block_type.known_shape = _SCALAR, _late
