"""Operators of mutation: generators that yield replacements of a node of the syntax tree. Imports no torch.

Operators on kernels see the nodes of functions that are decorated with `jit`; operators on host code see those of all
other functions.
"""

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Operator = Callable[[ast.AST], Iterator[ast.AST]]
Node = TypeVar("Node", bound=ast.AST)

_ACCESSES = {"load": 1, "store": 2}
"""Accesses of memory, and the position of their mask among the positional arguments."""
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
}
_EXCHANGED = {"sum": "max", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "exp": "exp2"}
_NARROWER = {"float64": "float32", "float32": "bfloat16", "int64": "int32", "int32": "int16"}


def _call(node: ast.AST, names: Iterable[str]) -> str | None:
    """Return the function's name if the node calls one of `tl.<names>` or a method of such a name."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
        return node.func.attr
    return None


def _with(node: Node, **fields: object) -> Node:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _without_keyword(node: ast.Call, name: str) -> Iterator[ast.AST]:
    if any(keyword.arg == name for keyword in node.keywords):
        yield _with(node, keywords=[keyword for keyword in node.keywords if keyword.arg != name])


def drop_mask(node: ast.AST) -> Iterator[ast.AST]:
    """Remove the mask of a load, a store or an atomic."""
    name = _call(node, [*_ACCESSES, "atomic_add", "atomic_max", "atomic_min"])
    if name is None or not isinstance(node, ast.Call):
        return
    yield from (
        _with(other, keywords=[k for k in other.keywords if k.arg != "other"]) for other in _calls(node, "mask")
    )
    place = _ACCESSES.get(name, 2)
    if len(node.args) > place:
        yield _with(node, args=node.args[:place], keywords=[k for k in node.keywords if k.arg != "other"])


def _calls(node: ast.Call, keyword: str) -> Iterator[ast.Call]:
    for found in _without_keyword(node, keyword):
        if isinstance(found, ast.Call):
            yield found


def drop_other(node: ast.AST) -> Iterator[ast.AST]:
    """Remove what a masked load takes outside of its mask."""
    if _call(node, ["load"]) and isinstance(node, ast.Call):
        yield from _without_keyword(node, "other")


def shift_address(node: ast.AST) -> Iterator[ast.AST]:
    """Shift the address of an access by one element."""
    if _call(node, [*_ACCESSES, "atomic_add"]) and isinstance(node, ast.Call) and node.args:
        yield _with(node, args=[ast.BinOp(node.args[0], ast.Add(), ast.Constant(1)), *node.args[1:]])


def change_constant(node: ast.AST) -> Iterator[ast.AST]:
    """Add one to a whole number, and a tenth (zero: one) to another one."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
        if node.value > 1:
            yield ast.Constant(node.value - 1)
    if isinstance(node, ast.Constant) and type(node.value) is float:
        yield ast.Constant(node.value * 1.1 if node.value else 1.0)


def change_comparison(node: ast.AST) -> Iterator[ast.AST]:
    """Take or leave the equal case, or the other one."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield _with(node, ops=[_COMPARISONS[type(node.ops[0])](), *node.ops[1:]])


def change_arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    """Exchange an arithmetic operator for another."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield _with(node, op=_ARITHMETIC[type(node.op)]())


def drop_operand(node: ast.AST) -> Iterator[ast.AST]:
    """Keep one side of a sum, a product or a conjunction of masks."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.BitAnd | ast.BitOr):
        yield node.left
        yield node.right


def swap_operands(node: ast.AST) -> Iterator[ast.AST]:
    """Exchange the sides of a difference or a quotient, or the branches of a where."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod):
        yield _with(node, left=node.right, right=node.left)
    if _call(node, ["where", "dot"]) and isinstance(node, ast.Call) and len(node.args) > 1:
        yield _with(node, args=[*node.args[:-2], node.args[-1], node.args[-2]])


def exchange_function(node: ast.AST) -> Iterator[ast.AST]:
    """Exchange a reduction or an elementwise function for its neighbour."""
    name = _call(node, _EXCHANGED)
    if name is not None and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield _with(node, func=_with(node.func, attr=_EXCHANGED[name]))


def narrow_type(node: ast.AST) -> Iterator[ast.AST]:
    """Take the next narrower type."""
    if isinstance(node, ast.Attribute) and node.attr in _NARROWER:
        yield _with(node, attr=_NARROWER[node.attr])


def drop_conversion(node: ast.AST) -> Iterator[ast.AST]:
    """Leave a value in its type."""
    if _call(node, ["to"]) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node.func.value


def change_program(node: ast.AST) -> Iterator[ast.AST]:
    """Take program 0, or the number of the program along another axis."""
    if _call(node, ["program_id", "num_programs"]) and isinstance(node, ast.Call):
        yield ast.Constant(0)
        axis = node.args[0] if node.args else node.keywords[0].value
        other = 1 if isinstance(axis, ast.Constant) and axis.value == 0 else 0
        yield _with(node, args=[ast.Constant(other)], keywords=[])


def plain_access_for_an_atomic(node: ast.AST) -> Iterator[ast.AST]:
    """Read and write for an atomic addition."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _call(node.value, ["atomic_add"]):
        pointer, value = node.value.args[:2]
        masks = [keyword for keyword in node.value.keywords if keyword.arg == "mask"]
        load = ast.Call(ast.parse("tl.load", mode="eval").body, [pointer], masks)
        store = ast.parse("tl.store", mode="eval").body
        yield ast.Expr(ast.Call(store, [pointer, ast.BinOp(load, ast.Add(), value)], masks))


def drop_statement(node: ast.AST) -> Iterator[ast.AST]:
    """Leave out a call for its effect, an accumulation, or a barrier."""
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield ast.Pass()


def change_loop(node: ast.AST) -> Iterator[ast.AST]:
    """Leave out the first or the last turn of a loop over a range with a step."""
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
        call = node.iter
        if len(call.args) > 1:
            step = call.args[2] if len(call.args) > 2 else ast.Constant(1)
            first, last = call.args[:2]
            yield _with(node, iter=_with(call, args=[ast.BinOp(first, ast.Add(), step), *call.args[1:]]))
            yield _with(node, iter=_with(call, args=[first, ast.BinOp(last, ast.Sub(), step), *call.args[2:]]))


def invert_condition(node: ast.AST) -> Iterator[ast.AST]:
    """Take the other branch."""
    if isinstance(node, ast.If | ast.IfExp):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))


def drop_sign(node: ast.AST) -> Iterator[ast.AST]:
    """Leave out a minus."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


def swap_arguments(node: ast.AST) -> Iterator[ast.AST]:
    """Exchange two neighbouring arguments of a launch."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
        for place in range(len(node.args) - 1):
            first, second = node.args[place : place + 2]
            yield _with(node, args=[*node.args[:place], second, first, *node.args[place + 2 :]])


def shrink_grid(node: ast.AST) -> Iterator[ast.AST]:
    """Round a number of programs or blocks down for up, or halve a block."""
    name = _call(node, ["cdiv", "next_power_of_2"])
    if name == "cdiv" and isinstance(node, ast.Call) and len(node.args) > 1:
        yield ast.BinOp(node.args[0], ast.FloorDiv(), node.args[1])
    elif name is not None:
        assert isinstance(node, ast.expr)
        yield ast.BinOp(node, ast.FloorDiv(), ast.Constant(2))


def uninitialised_memory(node: ast.AST) -> Iterator[ast.AST]:
    """Allocate without zeros."""
    if _call(node, ["zeros", "zeros_like"]) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield _with(node, func=_with(node.func, attr=node.func.attr.replace("zeros", "empty")))


KERNEL_OPERATORS: dict[str, Operator] = {
    "drop mask": drop_mask,
    "drop other": drop_other,
    "shift address": shift_address,
    "change constant": change_constant,
    "change comparison": change_comparison,
    "change arithmetic": change_arithmetic,
    "drop operand": drop_operand,
    "swap operands": swap_operands,
    "exchange function": exchange_function,
    "narrow type": narrow_type,
    "drop conversion": drop_conversion,
    "change program": change_program,
    "plain access for an atomic": plain_access_for_an_atomic,
    "drop statement": drop_statement,
    "change loop": change_loop,
    "invert condition": invert_condition,
    "drop sign": drop_sign,
    "round down": shrink_grid,
}
HOST_OPERATORS: dict[str, Operator] = {
    "swap arguments": swap_arguments,
    "shrink grid": shrink_grid,
    "uninitialised memory": uninitialised_memory,
}
