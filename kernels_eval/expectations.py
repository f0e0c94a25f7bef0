"""Words for values that pydantic refuses: "expected a whole number" in place of its own sentences.

Pydantic names an error's kind and what it knows of the limit (`ctx`); each kind has its words here. A kind that is not
listed keeps pydantic's words.
"""

import re
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_LONGEST_SHOWN = 60
_OF_A_UNION = re.compile(r"(literal|tuple|list|dict|set|function-\w+)\[.*\]$")
"""Pydantic puts the member of a union that it tried into the path, as if it were a field."""

WORDS = {
    "string_type": "text",
    "string_pattern_mismatch": "text that matches {pattern!r}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number with fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "too_short": "at least {min_length} in it",
    "too_long": "at most {max_length} in it",
    "missing": "a value",
    "value_error": "{error}",
}
"""Words to follow "expected", by pydantic's kind of error; names in braces are those of its context."""


def refusal(error: ValidationError) -> str:
    """Return one sentence on the first error: place, value found, value expected; and the number of others."""
    found = error.errors(include_url=False)
    first = found[0]
    place = place_of(first)
    peers = [each for each in found if place_of(each) == place]  # the other members of a union fail at the same place
    others = len(found) - len(peers)
    expectation = " or ".join(dict.fromkeys(map(expected, peers)))
    is_whole = not place  # a check of the whole value names its fields itself
    sentence = expectation if is_whole else f"{place}: found {_found(first)}, expected {expectation}"
    return sentence + (f" (and {others} more)" if others else "")


def expected(error: ErrorDetails) -> str:
    """Return the words for one error, to follow "expected"."""
    words = WORDS.get(error["type"])
    if words is None:
        return error["msg"]
    limits = {name: _short(value) for name, value in error.get("ctx", {}).items()}
    return words.format(**limits).replace(" 1 characters", " 1 character")


def place_of(error: ErrorDetails) -> str:
    """Return the dotted path of a value. Items of a list are counted from 1: `sft.betas, item 2`."""
    place = ""
    for part in error["loc"]:
        if isinstance(part, int):
            place += f", item {part + 1}" if place else f"item {part + 1}"
        elif not _OF_A_UNION.match(part):
            place += f".{part}" if place else part
    return place


def _short(limit: Any) -> Any:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _found(error: ErrorDetails) -> str:
    text = "nothing" if error["type"] == "missing" else repr(error["input"])
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
