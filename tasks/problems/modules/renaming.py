"""Gives arguments and attributes of a pair drawn names, so that what one is has to be read from its constructor.

Other people's modules call a number and a parameter alike: `multiplier`, `add_value`, `scale`.
"""

import ast
import io
import re
import token
from collections.abc import Iterable, Iterator
from tokenize import TokenInfo, generate_tokens

from kernels_eval.syntax import syntax_tree
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import ModulePair

RENAMED = 0.5
"""Share of the pairs with drawn names."""
_OFTEN = 0.7
"""Share of such a pair's names that are drawn."""
_STANDARD = re.compile(
    r"(in|out)_(channels|features)|(input|hidden|output)_size|kernel_size|stride|padding|output_padding|dilation|groups"
)
"""Arguments that all modules call alike."""
_SUFFIX = r"(_ptr|_shape|)"
"""End of a kernel's pointer to an attribute, and of the argument with a parameter's shape."""
_SINGLE = ("alpha", "beta", "bias", "constant", "divisor", "factor", "gain", "multiplier", "scale", "shift", "slope")
_FIRST = (
    *("act", "add", "bias", "clip", "div", "divide", "extra", "lower", "max", "min", "mul", "multiply", "norm"),
    *("pool", "residual", "scale", "scaling", "shift", "slope", "sub", "subtract", "sum", "upper"),
)
_SECOND = (
    *("amount", "coefficient", "constant", "factor", "level", "offset", "param", "tensor", "term", "value", "weight"),
)
_LAYERS = (
    *(
        "activation",
        "block",
        "block1",
        "bn1",
        "conv1",
        "conv2",
        "convolution",
        "dense",
        "encoder",
        "fc",
        "fc1",
        "final",
    ),
    *("first", "gate", "gemm", "head", "layer", "layer1", "linear1", "main", "matmul", "mixer", "norm1", "op", "op1"),
    *("pool1", "proj", "projection", "second", "stage", "stem", "transform"),
)


def with_drawn_names(rng: Draw, pair: ModulePair) -> ModulePair:
    """Return the pair, `RENAMED` of them with drawn names, the same ones in the problem and in each of its kernels."""
    kernels = [pair.kernel_source, *pair.slower, *([pair.earlier_source] * bool(pair.earlier_source))]
    names = drawn_names(rng, pair.problem_source, [pair.problem_source, *filter(None, kernels)])
    if not names:
        return pair
    return pair.model_copy(
        update={
            "problem_source": renamed(pair.problem_source, names),
            "kernel_source": renamed(pair.kernel_source, names),
            "earlier_source": pair.earlier_source and renamed(pair.earlier_source, names),
            "slower": tuple(renamed(source, names) for source in pair.slower),
        }
    )


def drawn_names(rng: Draw, problem: str, texts: Iterable[str]) -> dict[str, str]:
    """Return new names by old ones for `RENAMED` of the problems, for others none; no text has one of the new ones."""
    if not rng.chance(RENAMED):
        return {}
    used, names = {word for text in texts for word in re.findall(r"\w+", text)}, dict[str, str]()
    for old in _names_of(problem):
        if old in names or _STANDARD.fullmatch(old) or not rng.chance(_OFTEN):
            continue
        for _ in range(20):
            new = rng.choice(_LAYERS) if old.startswith("self.") else _drawn_value(rng)
            if not any(new + suffix in used for suffix in ("", "_ptr", "_shape")):
                names[old] = new
                used.add(new)
                break
    return names


def renamed(source: str, names: dict[str, str]) -> str:
    """Return the source with other names of arguments and attributes, those of its pointers and shapes with them.

    Names of another object's attributes, and of a call's keywords, stay. A name with `self.` is an attribute alone.
    """
    lines, found = source.splitlines(keepends=True), list(_tokens(source))
    for place in range(len(found) - 1, -1, -1):
        item, text = found[place], None
        if item.type == token.NAME and not _is_of_other(found, place):
            text = names.get(f"self.{item.string}") if found[place - 1].string == "." else None
            text = text or _new_name(item.string, names)
        elif item.type == token.STRING and item.string.startswith('"""'):  # the list of arguments in a docstring
            text = re.sub(r"(?m)^( +)(\w+)(?= \()", lambda m: m[1] + (_new_name(m[2], names) or m[2]), item.string)
        if text is not None and text != item.string:
            _replace(lines, item, text)
    return "".join(lines)


def _drawn_value(rng: Draw) -> str:
    name = rng.choice(_SINGLE) if rng.chance(0.3) else f"{rng.choice(_FIRST)}_{rng.choice(_SECOND)}"
    return name + rng.pick("", "", "", "", "1", "2")


def _names_of(problem: str) -> Iterator[str]:
    """Yield the names that the problem's constructor gives: layers with `self.`, other attributes, arguments."""
    made = next((node for node in ast.walk(syntax_tree(problem)) if getattr(node, "name", "") == "__init__"), None)
    if not isinstance(made, ast.FunctionDef):
        return
    attributes = set[str]()
    for statement in made.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
            name, value = statement.targets[0].attr, ast.unparse(statement.value)
            attributes.add(name)
            yield f"self.{name}" if value.startswith("nn.") and not value.startswith("nn.Parameter") else name
    for argument in made.args.args[1:]:
        if argument.arg.removesuffix("_shape") not in attributes:
            yield argument.arg


def _new_name(old: str, names: dict[str, str]) -> str | None:
    match = re.fullmatch(rf"(\w+?){_SUFFIX}", old)
    if old in names:
        return names[old]
    return names[match[1]] + match[2] if match and match[1] in names else None


def _is_of_other(found: list[TokenInfo], place: int) -> bool:
    """Return True for an attribute of another object than `self`, and for a keyword of a call."""
    if place and found[place - 1].string == ".":
        return found[place - 2].string != "self"
    item, after = found[place], found[place + 1]
    return after.string == "=" and after.start == item.end and not item.line.lstrip().startswith("def ")


def _tokens(source: str) -> Iterator[TokenInfo]:
    return generate_tokens(io.StringIO(source).readline)


def _replace(lines: list[str], item: TokenInfo, text: str) -> None:
    """Write a text in the place of a token of these lines."""
    (first, start), (last, end) = item.start, item.end
    whole = lines[first - 1][:start] + text + lines[last - 1][end:]
    lines[first - 1 : last] = whole.splitlines(keepends=True)
