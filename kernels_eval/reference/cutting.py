"""Worker process: a problem of fewer elements, where its own is too large to be interpreted: its constants cut down.

KernelBench's problems state their sizes as constants of the module (`height = 256`). A constant that `get_inputs` or
`get_init_inputs` reads, and `Model` does not, is halved as often as the reference still runs, until one call costs
little. The leading size comes first, then the others of the inputs alone (height, sequence), then those of the
constructor (channels, features). A constant whose name `Model` uses for something of its own, a parameter for instance,
is halved only where a call is still large. A size of `torch.rand` or `torch.randn` that `get_inputs` states as a
literal is a constant too. A half of an even number stays even as long as it can, one of an odd number is odd.
"""

import ast
import math
import symtable
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernels_eval.reference.eager_run import EagerRun, follow
from kernels_eval.reference.inputs import Shape
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.syntax import syntax_tree

MOST_FLOPS, MOST_BYTES = 2e9, 32e6
"""CallWork of one call from which on a problem is cut: matrix products, and bytes that its operators move.

A verdict makes some twenty calls, of the candidate and of the reference, and is to take less than three seconds."""
_WANTED_FLOPS, _WANTED_BYTES = 1e9, 24e6
"""CallWork down to which it is cut."""
_FLOPS_PER_S, _BYTES_PER_S = 2e9, 2e8
"""Work that interpreted kernels, or a reference with its float64 oracle, do in a second of a usual core."""
_NEVER = 1 << 30
_FLOORS = ((4, 16, _NEVER, _NEVER), (4, 16, 32, _NEVER), (2, 8, 16, _NEVER), (2, 8, 16, 16))
"""Least sizes of four passes: of the leading size, the inputs' others, the constructor's, and those that `Model` names.
The last pass is made only where a call is still large."""
_LEAST_GAIN = 0.95
_LEAST_LITERAL = 32
"""Literals in calls of `_DRAWN` from which on they are cut; a step that saves no work is not taken."""
_DRAWN = ("rand", "randn")
_PLAIN = ("get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class CallWork:
    """CallWork of one call of a reference in eager mode."""

    flops: float
    bytes: float
    output_elements: int
    fixed_bytes: float = 0.0
    """Those of weights and of inputs that stay as they are where the leading size is reduced."""

    @classmethod
    def of(cls, run: EagerRun, fixed_bytes: float = 0.0) -> "CallWork":
        """Return the work of a run that was followed."""
        launches = run.launches
        elements = sum(math.prod(shape) for shape in run.output_shapes or ())
        flops = math.fsum(launch.matrix_flops for launch in launches)
        return cls(flops, math.fsum(launch.dram_bytes for launch in launches), elements, fixed_bytes)

    @classmethod
    def most(cls, seconds: float) -> "CallWork":
        """Return the work that a candidate's kernels can be interpreted for in so many seconds, about."""
        return cls(_FLOPS_PER_S * seconds, _BYTES_PER_S * seconds, 0)

    @property
    def in_words(self) -> str:
        """The figures with their units."""
        return f"{self.flops / 1e9:.1f} GFLOP and {self.bytes / 1e6:.0f} MB"

    def is_too_large(self, seconds: float) -> bool:
        """True if it is more than kernels can be interpreted for in so many seconds."""
        most = self.most(seconds)
        return self.flops > max(most.flops, MOST_FLOPS) or self.bytes > max(most.bytes, MOST_BYTES)

    def share(self, factor: float) -> "CallWork":
        """Return the work of a part of the rows."""
        fixed = min(self.fixed_bytes, self.bytes)
        nbytes = fixed + (self.bytes - fixed) * factor
        return CallWork(self.flops * factor, nbytes, round(self.output_elements * factor), fixed)

    @property
    def is_large(self) -> bool:
        """True if the problem has to be cut."""
        return self.flops > MOST_FLOPS or self.bytes > MOST_BYTES

    @property
    def excess(self) -> float:
        """Factor by which it exceeds the wanted work."""
        return max(self.flops / _WANTED_FLOPS, self.bytes / _WANTED_BYTES)


@dataclass(frozen=True)
class Cut:
    """A problem with smaller constants."""

    source: str
    sizes: Mapping[str, tuple[int, int]]
    """Constants that were cut: each with its value now, and the problem's own."""


@dataclass(frozen=True)
class _Constants:
    tree: ast.Module
    values: dict[str, int]
    leading: str | None
    constructor: frozenset[str]
    named: frozenset[str]
    """Constants whose names `Model` uses for something of its own."""

    def source(self, changed: Mapping[str, int]) -> str:
        """Return the problem with other values of its constants."""
        for node in self.tree.body:
            for target, literal in _assigned(node):
                if target.id in self.values:
                    literal.value = changed.get(target.id, self.values[target.id])
        return ast.unparse(self.tree) + "\n"

    def kind(self, name: str) -> int:
        """Return 0 for the leading size, 1 for others of the inputs alone, 2 for the constructor's, 3 for `named`."""
        return 3 if name in self.named else 0 if name == self.leading else 2 if name in self.constructor else 1


def cut_problem(source: str, full_size: int | None, shapes: list[Shape] | None = None) -> Cut | None:
    """Return the problem with smaller constants, or None if none of them can be cut.

    `full_size`: leading size of the inputs. `shapes`: those of the outputs, where they are known: a recurrent network
    takes seconds to be followed. The result may still be large, if the program allows no more.
    """
    constants = _constants_of(syntax_tree(source), full_size)
    shapes = _shapes(source) if shapes is None else shapes
    if constants is None or shapes is None:
        return None
    chosen: dict[str, int] = {}
    work: CallWork | None = None
    for floors in _FLOORS:
        refused: list[dict[str, int]] = []
        while work is None or (work.is_large if floors is _FLOORS[-1] else work.excess > 1):
            step = next((step for step in _steps(constants, chosen, floors) if step not in refused), None)
            if step is None:
                break
            less = _work(constants.source(chosen | step), shapes)
            if less is None or (work is not None and not _is_gain(work, less, floors is _FLOORS[-1])):
                refused.append(step)
            else:
                chosen, work = chosen | step, less
    if not chosen:
        return None
    return Cut(constants.source(chosen), {name: (size, constants.values[name]) for name, size in chosen.items()})


def enlarged(source: str, sizes: Mapping[str, tuple[int, int]], seconds: float) -> Cut | None:
    """Return a problem whose cut constants are larger: all doubled as often as kernels can be interpreted in `seconds`.

    `sizes`: those of its cut. Equal ones stay equal. None: they cannot be doubled once, or it gives the problem's own.
    """
    constants, shapes = _constants_of(syntax_tree(source), None), _shapes(source)
    found: Cut | None = None
    while constants is not None and shapes is not None:
        larger = {name: (min(2 * now, own), own) for name, (now, own) in (found.sizes if found else sizes).items()}
        text = constants.source({name: now for name, (now, _) in larger.items()})
        work = _work(text, shapes)
        is_own = all(now == own for now, own in larger.values())
        if is_own or work is None or work.is_too_large(seconds):
            break
        found = Cut(text, larger)
    return found


def _is_gain(work: CallWork, less: CallWork, is_last: bool) -> bool:
    """True if a step saves work; in the last pass, a share of it: a network's number of classes saves next to none."""
    if is_last:
        return less.excess < _LEAST_GAIN * work.excess
    return less.flops < work.flops or less.bytes < work.bytes


def _steps(constants: _Constants, chosen: Mapping[str, int], floors: tuple[int, ...]) -> Iterator[dict[str, int]]:
    """Yield halvings of constants, those of equal value together, then each: the leading size, then the largest."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, value in (constants.values | dict(chosen)).items():
        groups.setdefault((constants.kind(name), -value), []).append(name)
    for (kind, negative), names in sorted(groups.items()):
        value = -negative
        half = value // 2 if value % 2 == 0 else value // 2 | 1
        if floors[kind] <= half < value:
            yield dict.fromkeys(names, half)
            yield from ({name: half} for name in names if len(names) > 1)


def _constants_of(tree: ast.Module, full_size: int | None) -> _Constants | None:
    """Return the constants that may be cut; None: there are none."""
    tree = _with_named_sizes(tree)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    others = [node for name, node in functions.items() if name not in _PLAIN]
    elsewhere = {part for node in others for part in _globals(node)}
    free = {
        target.id: value.value
        for node in tree.body
        for target, value in _assigned(node)
        if type(value.value) is int and value.value > 2 and target.id not in elsewhere
    }
    if not free or "get_inputs" not in functions:
        return None
    constructor = frozenset(_names(functions["get_init_inputs"])) if "get_init_inputs" in functions else frozenset()
    first = [name for name in _names(functions["get_inputs"]) if free.get(name) == full_size is not None]
    leading = first[0] if first and first[0] not in constructor else None
    named = frozenset(part for node in others for part in _names(node))
    return _Constants(tree, free, leading, constructor, named)


def _with_named_sizes(tree: ast.Module) -> ast.Module:
    """Return the program with literal sizes of drawn inputs as constants of the module: `size_224 = 224`.

    Those of other tensors stay, such as an `arange` that a mask is made of: cut alone, it could hide what it masks.
    """
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    named: dict[int, str] = {}

    class Naming(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.expr:
            if type(node.value) is not int or node.value < _LEAST_LITERAL:
                return node
            name = f"size_{node.value}"
            while name in used:
                name += "_"
            return ast.Name(named.setdefault(node.value, name), ast.Load())

    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == "get_inputs":
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DRAWN:
                    node.args = [Naming().visit(argument) for argument in node.args]
    lines = "\n".join(f"{name} = {value}" for value, name in named.items())
    tree.body += ast.parse(lines).body
    return ast.fix_missing_locations(tree)


def _globals(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a function or class takes from the module."""
    tables = [symtable.symtable(ast.unparse(node), "problem.py", "exec")]
    yield from (symbol.get_name() for symbol in tables[0].get_symbols())  # defaults, bases, decorators
    while tables:
        table = tables.pop()
        tables += table.get_children()
        yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())


def _assigned(node: ast.stmt) -> Iterator[tuple[ast.Name, ast.Constant]]:
    """Yield the names that a statement of the module gives a literal: `n = 3`, `n, m = 3, 4`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return
    target, value = node.targets[0], node.value
    pairs: Iterable[tuple[ast.expr, ast.expr]] = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
    for name, literal in pairs:
        if isinstance(name, ast.Name) and isinstance(literal, ast.Constant):
            yield name, literal


def _names(node: ast.AST) -> list[str]:
    """Return the names in a function or class, in the order of the text."""
    found = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    return [part.id for part in sorted(found, key=lambda part: (part.lineno, part.col_offset))]


def _followed(source: str) -> EagerRun | None:
    """Follow the reference without values; None if it does not run so."""
    try:
        return follow(ProblemCode(source))
    except Exception:  # noqa: BLE001 (code of the problem, at sizes that nobody has asked for)
        return None


def _shapes(source: str) -> list[Shape] | None:
    """Return the shapes of a problem's outputs; None if the model has to compute."""
    run = _followed(source)
    return None if run is None else run.output_shapes


def _work(source: str, full: list[Shape]) -> CallWork | None:
    """Return the work of a call; None if it does not run, or if an output lost a dimension of several elements."""
    run = _followed(source)
    if run is None or run.output_shapes is None:
        return None
    lost = [[size > 1 for size in shape] for shape in run.output_shapes] != [[n > 1 for n in shape] for shape in full]
    return None if lost else CallWork.of(run)
