"""Kernels with one of the mistakes that models make, written from a right kernel's text.

A mistake is a replacement of text. Most are wrong for the judge; some only cost time, or do no harm at a given shape.
"""

import re
from dataclasses import dataclass

from tasks.problems.modules.draw import Draw


@dataclass(frozen=True)
class Mistake:
    """A mistake: what is replaced, by what."""

    name: str
    pattern: str
    replacement: str
    every: bool = True
    """Replace every place, not the first alone."""


MISTAKES = (
    Mistake(
        "load_without_mask", r"( = tl\.load\([^\n]*?), mask=[^\n]*?, other=(?:[01]\.0|-?float\(\"inf\"\))\)\n", r"\1)\n"
    ),
    Mistake("store_without_mask", r"(tl\.store\([^\n]*?), mask=[^\n]*\)\n", r"\1)\n"),
    Mistake("wrong_other", r'other=-float\("inf"\)', "other=0.0"),
    Mistake(
        "no_padding", r"tl\.where\(mask, ([^,\n()]+(?:\([^()\n]*\))?[^,\n()]*), (?:0\.0|-?float\(\"inf\"\))\)", r"\1"
    ),
    Mistake("no_constructor", r"    def __init__\(.*?\n\n", ""),
    Mistake("forgotten_argument", r"def __init__\(self, \w+", "def __init__(self"),
    Mistake("forgotten_self", r"self\.(\w+)(, BLOCK)", r"\1\2"),
    Mistake("wrong_block", r"triton\.next_power_of_2\((\w+)\)", r"\1"),
    Mistake("missing_block", r", BLOCK=\w+\)\n", ")\n"),
    Mistake("grid_too_small", r"triton\.cdiv\((\w+), (\w+)\)", r"\1 // \2"),
    Mistake("grid_not_tuple", r"\[\((triton\.cdiv\([^()]*\)),\)\]", r"[\1]"),
    Mistake("wrong_stride", r"x_ptr \+ row \* R", "x_ptr + row"),
    Mistake("wrong_inner_stride", r"\* inner \+", "+"),
    Mistake("kept_dimension", r"del shape\[([^\]]+)\]", r"shape[\1] = 1"),
    Mistake("dropped_dimension", r"shape\[([^\]]+)\] = 1", r"del shape[\1]"),
    Mistake("not_averaged", r" / (?:R|n)\b(?=[^\n]*\n)", "", every=False),
    Mistake("no_epsilon", r" \+ (?:eps|1e-\d+)\b", ""),
    Mistake("no_such_function", r"tl\.(sigmoid|erf|rsqrt)\(", r"tl.math_\1("),
    Mistake("tanh_of_tl", r"2\.0 \* tl\.sigmoid\(2\.0 \* x\) - 1\.0", "tl.tanh(x)"),
    Mistake("library_call", r"    return out\n", "    return torch.clone(out)\n"),
    Mistake("wrong_result", r"out = torch\.empty_like\(x\)", "out = torch.empty(x.shape[0], device=x.device)"),
    Mistake("returns_input", r"return out\n", "return x\n"),
    Mistake("no_import", r"import triton\.language as tl\n", ""),
    # What small models confuse once names say nothing: numbers and pointers, what the module has, and sizes.
    Mistake("pointer_without_its_name", r"(def \w+_kernel\([^\n]*out_ptr, )(\w+)_ptr", r"\1\2", every=False),
    Mistake("pointer_as_number", r"tl\.load\((\w+) \+ (?:cols|o|c), mask=[^()]*?, other=0\.0\)", r"\1"),
    Mistake(
        "number_as_pointer",
        r"x = x ([*+/-]) ([a-z]\w+)\n",
        r"x = x \1 tl.load(\2_ptr + cols, mask=cols < N, other=0.0)\n",
        every=False,
    ),
    Mistake("attribute_that_is_not_set", r"        self\.(\w+) = \1\n", "", every=False),
    Mistake("layer_without_its_owner", r"self\.(\w+)\.(num_groups|eps|weight)", r"\1.\2", every=False),
    Mistake(
        "layer_without_its_bias",
        r"(self\.\w+ = nn\.(?:Linear|Conv\w+)\([^\n]*?)(?<!bias=False)\)\n",
        r"\1, bias=False)\n",
        every=False,
    ),
    Mistake("host_with_fewer_values", r"(x = (?:(?:linear|conv\w*)\(x, self\.\w+|apply\(\w+, x)), self\.\w+", r"\1"),
    Mistake("argument_twice", r"(def \w+_kernel\([^\n]*?), (\w+), ", r"\1, \2, \2, ", every=False),
    Mistake("parenthesis_left_out", r"\)\)\n", ")\n", every=False),
    Mistake("size_without_padding", r"\(n \+ 2 \* \w+ - ", "(n - "),
    Mistake("size_with_half_the_padding", r"\(n - 1\) \* (\w+) - 2 \* ", r"(n - 1) * \1 - "),
    Mistake("size_without_the_outputs_padding", r" \+ q(?= \+ 1 for)", ""),
)


def with_mistake(rng: Draw, kernel: str) -> str | None:
    """Return the kernel with one mistake; None if none applies."""
    for mistake in rng.sample(MISTAKES, len(MISTAKES)):
        wrong = re.sub(mistake.pattern, mistake.replacement, kernel, count=0 if mistake.every else 1, flags=re.DOTALL)
        if wrong != kernel:
            return wrong
    return None
