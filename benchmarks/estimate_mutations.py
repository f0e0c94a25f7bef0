"""Random changes of a kernel that keep its result and move its cost: what a policy could try against the estimate.

Each operator takes a module's syntax tree and a generator, changes the tree in place and returns True, or returns
False where it finds no place. Some are honest tuning, some are useless work. Whether the result is still right is the
judge's question. Imports neither torch nor triton.
"""

import ast
import copy
import random
from collections.abc import Callable, Iterator

Operator = Callable[[ast.Module, random.Random], bool]


def mutated(source: str, rng: random.Random, most: int = 3) -> tuple[str, list[str]]:
    """Return a source with one to `most` changes, and the names of their operators; none if no place was found."""
    tree, names = ast.parse(source), list[str]()
    for _ in range(rng.randint(1, most)):
        name = rng.choice([*OPERATORS])
        trial = copy.deepcopy(tree)
        if OPERATORS[name](trial, rng):
            tree = trial
            names.append(name)
    return ast.unparse(ast.fix_missing_locations(tree)), names


def _kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [each for each in functions if any("jit" in ast.unparse(mark) for mark in each.decorator_list)]


def _forward(tree: ast.Module) -> ast.FunctionDef:
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew")
    return next(node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward")


def _launches(tree: ast.Module) -> list[ast.Call]:
    return [
        node for node in ast.walk(_forward(tree)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
    ]


def _calls(tree: ast.Module, *names: str) -> list[ast.Call]:
    """Return the calls of functions of the language in kernels."""
    found = [node for kernel in _kernels(tree) for node in ast.walk(kernel) if isinstance(node, ast.Call)]
    return [node for node in found if ast.unparse(node.func).removeprefix("tl.") in names]


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _set_keyword(call: ast.Call, name: str, value: str | int) -> None:
    call.keywords = [each for each in call.keywords if each.arg != name]
    call.keywords.append(ast.keyword(name, ast.Constant(value)))


def _replace(tree: ast.AST, old: ast.AST, new: ast.expr) -> None:
    """Put an expression into the place of another."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
                return
            if isinstance(value, list) and any(each is old for each in value):
                value[next(place for place, each in enumerate(value) if each is old)] = new
                return


def _launch_option(name: str, values: tuple[int, ...]) -> Operator:
    def change(tree: ast.Module, rng: random.Random) -> bool:
        launches = _launches(tree)
        if launches:
            _set_keyword(rng.choice(launches), name, rng.choice(values))
        return bool(launches)

    return change


def resize_blocks(tree: ast.Module, rng: random.Random) -> bool:
    """Replace a number of host code, everywhere, by another power of two; a launch's sizes and its grid agree."""
    numbers = [node for node in ast.walk(_forward(tree)) if isinstance(node, ast.Constant)]
    found = sorted({node.value for node in numbers if type(node.value) is int and node.value >= 8})
    if not found:
        return False
    old, new = rng.choice(found), 2 ** rng.randint(4, 14)
    for node in numbers:
        if node.value == old:
            node.value = new
    return True


def hint_a_load(tree: ast.Module, rng: random.Random) -> bool:
    """Add an eviction or cache hint."""
    loads = _calls(tree, "load")
    hints = [("eviction_policy", "evict_first"), ("eviction_policy", "evict_last"), ("cache_modifier", ".cg"),
             ("cache_modifier", ".ca"), ("volatile", True)]  # fmt: skip
    if loads:
        _set_keyword(rng.choice(loads), *rng.choice(hints))
    return bool(loads)


def _twice(of: str) -> Operator:
    def change(tree: ast.Module, rng: random.Random) -> bool:
        """Repeat a statement of a kernel."""
        places = [
            (block, place) for kernel in _kernels(tree) for block in _blocks(kernel)
            for place, statement in enumerate(block)
            if not isinstance(statement, ast.For | ast.If | ast.While) and f"tl.{of}(" in ast.unparse(statement)
        ]  # fmt: skip
        if places:
            block, place = rng.choice(places)
            block[place:place] = [copy.deepcopy(block[place]) for _ in range(rng.choice((1, 3, 15)))]
        return bool(places)

    return change


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for inner in ast.walk(node):
        for field in ("body", "orelse"):
            block = getattr(inner, field, None)
            if isinstance(block, list) and block:
                yield block


def repeat_the_kernel(tree: ast.Module, rng: random.Random) -> bool:
    """Run a kernel's whole body several times, or once in a loop."""
    kernels = _kernels(tree)
    if not kernels:
        return False
    kernel = rng.choice(kernels)
    way = rng.choice(("range", "tl.static_range", "tl.range"))
    kernel.body = [ast.For(ast.Name("again_"), _expression(f"{way}({rng.choice((1, 2, 4))})"), kernel.body, [])]
    return True


def permute_lanes(tree: ast.Module, rng: random.Random) -> bool:
    """Give elements to other lanes of a block: backwards, or an odd stride apart."""
    ranges = _calls(tree, "arange")
    if not ranges:
        return False
    chosen = rng.choice(ranges)
    size, text = ast.unparse(chosen.args[1]), ast.unparse(chosen)
    new = rng.choice((f"({size} - 1 - {text})", f"({text} * 33 % {size})", f"({text} * 5 % {size})", f"({text} ^ 1)"))
    _replace(tree, chosen, _expression(new))
    return True


def permute_programs(tree: ast.Module, rng: random.Random) -> bool:
    """Give blocks to other programs, backwards or in pairs, everywhere in a kernel."""
    ids = [node for node in _calls(tree, "program_id") if ast.unparse(node.args[0]) == "0"]
    new = rng.choice(("(tl.num_programs(0) - 1 - tl.program_id(0))", "(tl.program_id(0) ^ 1)",
                      "(tl.program_id(0) * 7 % tl.num_programs(0))"))  # fmt: skip
    for node in ids:
        _replace(tree, node, _expression(new))
    return bool(ids)


def stride_elements(tree: ast.Module, rng: random.Random) -> bool:
    """Turn `program * BLOCK + lane` into `lane * programs + program`."""
    sums = [
        node for kernel in _kernels(tree) for node in ast.walk(kernel)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.right, ast.Call)
        and "arange" in ast.unparse(node.right) and "program_id" in ast.unparse(node.left)
    ]  # fmt: skip
    if sums:
        chosen = rng.choice(sums)
        text = ast.unparse(chosen.right)
        _replace(tree, chosen, _expression(f"({text} * tl.num_programs(0) + tl.program_id(0))"))
    return bool(sums)


def change_a_store(tree: ast.Module, rng: random.Random) -> bool:
    """Write by an atomic exchange."""
    stores = _calls(tree, "store")
    if stores:
        rng.choice(stores).func = _expression("tl.atomic_xchg")
    return bool(stores)


def widen_values(tree: ast.Module, rng: random.Random) -> bool:
    """Convert what is loaded to another type and back, or compute on in it."""
    loads = _calls(tree, "load")
    if loads:
        chosen = rng.choice(loads)
        to = rng.choice((".to(tl.float64)", ".to(tl.float64).to(tl.float32)", ".to(tl.float16).to(tl.float32)"))
        _replace(tree, chosen, _expression(f"{ast.unparse(chosen)}{to}"))
    return bool(loads)


def spell_arithmetic(tree: ast.Module, rng: random.Random) -> bool:
    """Spell an operation in another way."""
    nodes = [
        node for kernel in _kernels(tree) for node in ast.walk(kernel)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)
    ]  # fmt: skip
    if not nodes:
        return False
    chosen = rng.choice(nodes)
    left, right = ast.unparse(chosen.left), ast.unparse(chosen.right)
    if isinstance(chosen.op, ast.Div):
        new = f"({left}) * (1.0 / ({right}))"
    else:
        new = rng.choice((f"({left}) / (1.0 / ({right}))", f"tl.fma({left}, {right}, 0.0)"))
    _replace(tree, chosen, _expression(new))
    return True


def spell_a_function(tree: ast.Module, rng: random.Random) -> bool:
    """Replace an exponential or a maximum by what equals it."""
    calls = _calls(tree, "exp", "maximum", "sqrt")
    if not calls:
        return False
    chosen = rng.choice(calls)
    given = [ast.unparse(each) for each in chosen.args]
    new = {
        "exp": f"tl.exp2(({given[0]}) * 1.4426950408889634)",
        "sqrt": f"({given[0]}) * tl.rsqrt({given[0]})",
        "maximum": f"tl.where({given[0]} > {given[-1]}, {given[0]}, {given[-1]})",
    }[ast.unparse(chosen.func).removeprefix("tl.")]
    _replace(tree, chosen, _expression(new))
    return True


def add_a_barrier(tree: ast.Module, rng: random.Random) -> bool:
    """Insert barriers, or a scalar loop that computes nothing, before a statement of a kernel."""
    kernels = _kernels(tree)
    if not kernels:
        return False
    block = rng.choice([block for kernel in kernels for block in _blocks(kernel)])
    text = rng.choice(("tl.debug_barrier()", "for idle_ in range(64):\n    tl.debug_barrier()"))
    block[rng.randrange(len(block)) : 0] = ast.parse(text).body
    return True


def add_host_work(tree: ast.Module, rng: random.Random) -> bool:
    """Insert work of host code before `forward`'s return."""
    body, forward = _forward(tree).body, _forward(tree)
    given = forward.args.args[1].arg
    text = rng.choice((
        "torch.cuda.synchronize()", f"{given}.clone()", f"torch.empty_like({given})", f"torch.zeros_like({given})",
        "list(range(20000))", f"float({given}.flatten()[0])", f"torch.tensor([1.0], device={given}.device)",
    ))  # fmt: skip
    body[rng.randrange(len(body)) : 0] = ast.parse(text).body
    return True


def launch_again(tree: ast.Module, rng: random.Random) -> bool:
    """Repeat a launch."""
    body = _forward(tree).body
    places = [
        place for place, each in enumerate(body)
        if isinstance(each, ast.Expr) and any(each.value is launch for launch in _launches(tree))
    ]  # fmt: skip
    if places:
        place = rng.choice(places)
        body[place:place] = [copy.deepcopy(body[place])]
    return bool(places)


def drop_a_statement(tree: ast.Module, rng: random.Random) -> bool:
    """Take a statement away."""
    blocks = [block for each in (*_kernels(tree), _forward(tree)) for block in _blocks(each) if len(block) > 1]
    if blocks:
        block = rng.choice(blocks)
        del block[rng.randrange(len(block))]
    return bool(blocks)


def drop_a_mask(tree: ast.Module, rng: random.Random) -> bool:
    """Take the masks of some accesses away, or of all."""
    masked = [call for call in _calls(tree, "load", "store") if any(each.arg == "mask" for each in call.keywords)]
    for call in rng.sample(masked, rng.randint(min(1, len(masked)), len(masked))):
        call.keywords = [each for each in call.keywords if each.arg not in ("mask", "other")]
    return bool(masked)


def allocate_otherwise(tree: ast.Module, rng: random.Random) -> bool:
    """Allocate zeros, or memory without values, or of half the width."""
    calls = [
        node for node in ast.walk(_forward(tree))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("empty", "empty_like", "zeros", "zeros_like", "full")
    ]  # fmt: skip
    if calls:
        chosen = rng.choice(calls)
        assert isinstance(chosen.func, ast.Attribute)
        attribute = chosen.func.attr
        if "zeros" in attribute:
            chosen.func.attr = attribute.replace("zeros", "empty")
        elif rng.random() < 0.5:
            chosen.func.attr = attribute.replace("empty", "zeros")
        else:
            chosen.keywords = [each for each in chosen.keywords if each.arg != "dtype"]
            chosen.keywords.append(ast.keyword("dtype", _expression("torch.float16")))
    return bool(calls)


OPERATORS: dict[str, Operator] = {
    "num_warps": _launch_option("num_warps", (1, 2, 4, 8, 16, 32)),
    "num_stages": _launch_option("num_stages", (1, 2, 3, 5, 8)),
    "maxnreg": _launch_option("maxnreg", (24, 32, 64, 128, 255)),
    "load_twice": _twice("load"),
    "store_twice": _twice("store"),
    **{
        each.__name__: each
        for each in (
            resize_blocks, hint_a_load, repeat_the_kernel, permute_lanes, permute_programs, stride_elements,
            change_a_store, widen_values, spell_arithmetic, spell_a_function, add_a_barrier, add_host_work,
            launch_again, drop_a_statement, drop_a_mask, allocate_otherwise,
        )
    },
}  # fmt: skip
"""Changes by name."""
