"""Interpreter process: `and`, `or`, `not`, `if`, `for`, `raise` and `assert`, as Triton's compiler means them.

The interpreter runs a kernel's function as Python. Python asks an operand of `and` for its truth, which a block of
values has not; skips the second operand, which compiled code always evaluates; and counts loops in its own integers.
`rewrite` replaces these constructs in the syntax tree by calls of the functions in `GLOBALS`, which do what
CodeGenerator (triton/compiler/code_generator.py of Triton 3.7) does: visit_BoolOp, visit_UnaryOp, visit_Compare,
visit_For, visit_Assert, visit_Name. What it refuses is refused here only where the kernel reaches it: the compiler does
not visit a compile-time branch that is not taken.
"""

import ast
import functools
import itertools
from collections.abc import Callable, Collection, Generator
from typing import Any

import numpy as np
import triton.language as tl

from kernels_eval.interpreter.batched_accesses import UnevenError
from kernels_eval.interpreter.data_races import RACES
from kernels_eval.interpreter.dead_products import without_dead_products
from kernels_eval.interpreter.load_turns import LOAD_TURNS
from kernels_eval.interpreter.own_stores import OWN_STORES
from kernels_eval.interpreter.triton_patches.batch_handle import BatchHandle
from kernels_eval.interpreter.triton_patches.names import scalar, upstream

_Thunk = Callable[[], Any]


class UnsupportedError(ValueError):
    """Raised where a kernel reaches what Triton cannot compile."""


def rewrite(function: ast.FunctionDef, variables: Collection[str] = ()) -> ast.FunctionDef:
    """Replace, in a kernel's syntax tree, what Python and Triton's compiler mean differently.

    `variables`: global names of plain values, which a kernel may use as defaults of its parameters only.
    """
    return _Rewriting(variables, _counters_read_later(function)).visit(without_dead_products(function))


def install() -> None:
    """Make loops and static assertions of the language the compiler's. Call it after Triton's own patches."""
    # Triton's own functions ask `if other:` whether there is a tensor. Kernels ask for its value, by `_condition`.
    tl.tensor.__bool__ = lambda self: True  # pyright: ignore[reportAttributeAccessIssue]
    for owner in (tl, tl.core):
        owner.range = counted  # pyright: ignore[reportAttributeAccessIssue]
        owner.static_assert = _static_assert  # pyright: ignore[reportAttributeAccessIssue]


def counted(first: Any, last: Any = None, step: Any = None, num_stages: Any = None, **_: Any) -> Generator[Any]:
    """Iterate as `range` in a kernel: the counter is a scalar tensor of the bounds' common type."""
    asked = None if num_stages is None else num_stages.__index__()
    loop = OWN_STORES.enter(asked)
    for value in _numbers(first, last, step):
        loop.begin_turn()
        yield value
    LOAD_TURNS.begin_turn(1)
    OWN_STORES.leave()


def _numbers(first: Any, last: Any, step: Any) -> Generator[Any]:
    bounds = (0, first) if last is None else (first, last)
    step = 1 if step is None else step
    rules = upstream.interpreter_semantic
    dtype = tl.int32
    for bound in (*bounds, step):
        dtype = rules.integer_promote_impl(dtype, rules.to_tensor(bound).dtype)
    numpy_type = upstream._get_np_dtype(dtype)
    is_turned = hasattr(step, "handle") and step.__index__() < 0
    if any(_differs(bound) for bound in bounds):
        if is_turned:
            raise UnsupportedError("programs are run one by one")
        yield from _in_step(bounds, step.__index__(), numpy_type, dtype)
        return
    first, last = (bound.__index__() for bound in bounds)
    if is_turned:
        if first < last:
            raise UnsupportedError("a loop whose step is negative at run time never ends")
        return  # the compiled loop counts upwards: it turns round for a step that it knows to be negative alone
    for value in range(first, last, step.__index__()):
        yield scalar(value, numpy_type, dtype)


def _differs(bound: Any) -> bool:
    """True for a bound of a loop that programs of a batch do not share."""
    handle = getattr(bound, "handle", None)
    return type(handle) is BatchHandle and handle.shape == (1,) and bool((handle.lanes != handle.lanes[:1]).any())


def _in_step(bounds: tuple[Any, Any], step: int, numpy_type: Any, dtype: tl.dtype) -> Generator[Any]:
    """Iterate from and to where each program of a batch does. Raises UnevenError if some take fewer or more turns."""
    first, last = (
        bound.handle.lanes[:, 0].astype(np.int64) if _differs(bound) else np.int64(bound.__index__())
        for bound in bounds
    )
    turns = np.maximum(-((first - last) // step), 0)  # of range, rounded up
    if (turns != turns[0]).any():
        raise UnevenError(int(np.argmax(turns != turns[0])))
    builder = upstream.interpreter_semantic.builder
    starts = np.broadcast_to(first, turns.shape)[:, None]
    for turn in range(int(turns[0])):
        yield tl.tensor(builder.made((starts + turn * step).astype(numpy_type), dtype), dtype)


def _ended() -> Any:
    """Return what the counter of a loop holds after it: nothing that is defined."""
    return scalar(_UNDEFINED, np.int32, tl.int32)


def least(*values: Any) -> Any:
    """`min` of kernels: of tensors the minimum of each pair of elements, of plain numbers Python's."""
    return _combined(values, min, tl.minimum)


def greatest(*values: Any) -> Any:
    """`max` of kernels: of tensors the maximum of each pair of elements, of plain numbers Python's."""
    return _combined(values, max, tl.maximum)


def _combined(values: tuple[Any, ...], plain: Callable[..., Any], of_tensors: Callable[..., Any]) -> Any:
    if any(isinstance(value, tl.tensor) for value in values):
        return functools.reduce(of_tensors, values)
    return plain(*map(_plain, values))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _turn(value: Any) -> Any:
    """Return the truth of a `while` loop's condition, before each of its turns."""
    LOAD_TURNS.begin_turn(1)
    LOAD_TURNS.wait(getattr(getattr(value, "handle", None), "marks", frozenset()))
    OWN_STORES.keep_in_order()
    return _condition(value)


def _condition(value: Any) -> Any:
    """Return the truth of a condition: a plain value, or a tensor of one value."""
    if not isinstance(value, tl.tensor):
        return value
    if value.handle.data.size != 1:
        raise UnsupportedError("Boolean value of Tensor with more than one value is ambiguous")
    OWN_STORES.spread(value.handle)
    return bool(value.handle.data.reshape(()))


_PLACES = itertools.count(1)
"""Numbers of `if` statements: one in a function that another one calls has another number."""
_ATOMICS = frozenset(f"atomic_{name}" for name in ("add", "and", "cas", "max", "min", "or", "xchg", "xor"))


def _is_atomic(function: ast.expr) -> bool:
    """True for an atomic of the language, and not for a helper whose name begins so."""
    return isinstance(function, ast.Attribute) and function.attr in _ATOMICS


def _branch(value: Any, place: int) -> Any:
    """Return the truth of an `if` statement's condition. `place`: the statement's number."""
    OWN_STORES.branch(place, is_known=not isinstance(value, tl.tensor))
    return _condition(value)


def _all(*values: _Thunk) -> Any:
    return _joined(values, decisive=False, join="logical_and")


def _any(*values: _Thunk) -> Any:
    return _joined(values, decisive=True, join="logical_or")


def _joined(values: tuple[_Thunk, ...], decisive: bool, join: str) -> Any:
    """Evaluate operands in order: a plain one may decide, tensors are all evaluated and joined as int1."""
    tensors: list[Any] = []
    value = None
    for evaluate in values:
        value = evaluate()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is decisive:
            return value
    if not tensors:
        return value
    while len(tensors) > 1:
        right = tensors.pop()
        tensors.append(getattr(tensors.pop(), join)(right))
    return tensors[0]


def _not(value: Any) -> Any:
    return upstream.interpreter_semantic.not_(value) if isinstance(value, tl.tensor) else not value


def _constant(value: Any) -> Any:
    if isinstance(value, tl.tensor):
        raise UnsupportedError("a branch on a value that is only known at run time cannot contain `raise`")
    return value


def _value(value: Any) -> Any:
    """Return `value.value`: the compiler makes constants of all that a kernel is given or assigns and no tensor is."""
    return value if value is None or isinstance(value, _CONSTANTS) else value.value


def _assert(condition: Any, message: _Thunk) -> None:
    holds = condition.handle.data.all() if isinstance(condition, tl.tensor) else condition
    assert holds, str(message())


def _static_assert(condition: Any, message: Any = "") -> None:
    if isinstance(condition, tl.tensor):
        raise UnsupportedError("the condition of static_assert is only known at run time")
    if not condition:
        raise UnsupportedError(f"static assertion failed: {_plain(message)}")


def _refuse(message: str) -> None:
    raise UnsupportedError(message)


_UNDEFINED = 0x55555555
_CONSTANTS = (bool, int, float, str, tuple, tl.dtype)
GLOBALS: dict[str, Any] = {
    "_kernel_and": _all,
    "_kernel_or": _any,
    "_kernel_not": _not,
    "_kernel_condition": _condition,
    "_kernel_branch": _branch,
    "_kernel_joined": OWN_STORES.join,
    "_kernel_unanswered": RACES.unanswered,
    "_kernel_turn": _turn,
    "_kernel_ended": _ended,
    "_kernel_constant": _constant,
    "_kernel_value": _value,
    "_kernel_assert": _assert,
    "_kernel_refuse": _refuse,
}
"""Functions that a rewritten kernel calls, by the names that it has for them."""
BUILTINS: dict[str, Any] = {"range": counted, "min": least, "max": greatest}
"""Functions that replace Python's own in a kernel."""


class _Rewriting(ast.NodeTransformer):
    def __init__(self, variables: Collection[str], counters: Collection[str]) -> None:
        self._variables = variables
        self._counters = counters

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._variables:
            return node
        message = f"a kernel cannot use the global variable {node.id}: expected {node.id} = tl.constexpr(...)"
        return _call(node, "_kernel_refuse", ast.Constant(message))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "_kernel_and" if isinstance(node.op, ast.And) else "_kernel_or"
        return _call(node, name, *map(_thunk, node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "_kernel_not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        return _call(
            node, "_kernel_refuse", ast.Constant("Triton compiles no chained comparison: use (a < b) & (b < c)")
        )

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "_kernel_value", node.value) if node.attr == "value" else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and _is_atomic(node.value.func):
            node.value = _call(node, "_kernel_unanswered", _thunk(node.value))
        return node

    def visit_If(self, node: ast.If) -> Any:
        if any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
            node.test = _call(node.test, "_kernel_constant", node.test)
        self.generic_visit(node)
        place = ast.Constant(next(_PLACES))
        node.test = _call(node.test, "_kernel_branch", node.test, place)
        return [node, ast.copy_location(ast.Expr(_call(node, "_kernel_joined", place)), node)]

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name) or node.target.id not in self._counters or _is_unrolled(node):
            return node
        target = ast.copy_location(ast.Name(node.target.id, ast.Store()), node)
        return [node, ast.copy_location(ast.Assign([target], _call(node, "_kernel_ended")), node)]

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._visit_condition(node, "_kernel_turn")

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._visit_condition(node)

    def _visit_condition(self, node: ast.If | ast.While | ast.IfExp, name: str = "_kernel_condition") -> ast.AST:
        self.generic_visit(node)
        node.test = _call(node.test, name, node.test)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        text = ast.Constant(f"the kernel reaches `{ast.unparse(node)}`, which Triton cannot compile")
        return ast.copy_location(ast.Expr(_call(node, "_kernel_refuse", text)), node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        message = _thunk(node.msg or ast.Constant(""))
        return ast.copy_location(ast.Expr(_call(node, "_kernel_assert", node.test, message)), node)


def _is_unrolled(loop: ast.For) -> bool:
    return _name_of(loop.iter.func if isinstance(loop.iter, ast.Call) else loop.iter) != "range"


def _name_of(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _counters_read_later(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names of loops' counters that are read outside of those loops, where Triton leaves them undefined."""
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For) and isinstance(node.target, ast.Name)]
    inside = {
        id(name) for loop in loops for name in ast.walk(loop)
        if isinstance(name, ast.Name) and name.id == getattr(loop.target, "id", None)
    }  # fmt: skip
    read = {
        name.id for name in ast.walk(function)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and id(name) not in inside
    }  # fmt: skip
    return frozenset(getattr(loop.target, "id", "") for loop in loops) & read


def _call(place: ast.AST, name: str, *arguments: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
    return ast.fix_missing_locations(ast.copy_location(call, place))


def _thunk(value: ast.expr) -> ast.expr:
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(arguments, value), value)
