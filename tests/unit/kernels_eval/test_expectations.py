"""Refused values are described in our words, whatever kind of error pydantic has for them."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, Field, ValidationError, create_model

from kernels_eval.expectations import WORDS, expected, refusal
from kernels_eval.verdict import TimingSource as Timing


def even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number")
    return value


Even = Annotated[int, AfterValidator(even)]
Pairs = tuple[Annotated[float, Field(lt=1)], float]
CASES: list[tuple[str, Any, Any, str]] = [
    ("string_type", str, 3, "x: found 3, expected text"),
    ("string_pattern_mismatch", Annotated[str, Field(pattern="^a$")], "b", "x: found 'b', expected text that matches '^a$'"),
    ("string_too_short", Annotated[str, Field(min_length=1)], "", "x: found '', expected text of at least 1 character"),
    ("string_too_long", Annotated[str, Field(max_length=2)], "abc", "x: found 'abc', expected text of at most 2 characters"),
    ("int_type", int, None, "x: found None, expected a whole number"),
    ("int_parsing", int, "two", "x: found 'two', expected a whole number"),
    ("int_parsing_size", int, "9" * 5000, f"x: found '{'9' * 56}..., expected a whole number with fewer digits"),
    ("int_from_float", int, 1.5, "x: found 1.5, expected a whole number"),
    ("float_type", float, [1], "x: found [1], expected a number"),
    ("float_parsing", float, "half", "x: found 'half', expected a number"),
    ("finite_number", Annotated[float, Field(allow_inf_nan=False)], float("nan"), "x: found nan, expected a finite number"),
    ("bool_type", bool, 1.5, "x: found 1.5, expected true or false"),
    ("bool_parsing", bool, "perhaps", "x: found 'perhaps', expected true or false"),
    ("greater_than", Annotated[float, Field(gt=0)], -0.5, "x: found -0.5, expected more than 0"),
    ("greater_than_equal", Annotated[int, Field(ge=1)], 0, "x: found 0, expected at least 1"),
    ("less_than", Annotated[float, Field(lt=1)], 1, "x: found 1, expected less than 1"),
    ("less_than_equal", Annotated[int, Field(le=1_000_000)], 10**7, "x: found 10000000, expected at most 1000000"),
    ("multiple_of", Annotated[int, Field(multiple_of=2)], 31, "x: found 31, expected a multiple of 2"),
    ("literal_error", Literal["a", "b"], "c", "x: found 'c', expected 'a' or 'b'"),
    ("enum", Timing, "odd", "x: found 'odd', expected 'gpu' or 'roofline'"),
    ("value_error", Even, 3, "x: found 3, expected an even number"),
    ("dict_type", dict[str, int], 3, "x: found 3, expected a mapping"),
    ("model_type", create_model("Inner", y=(int, 1)), 3, "x: found 3, expected a mapping"),
    ("list_type", list[int], 3, "x: found 3, expected a list"),
    ("tuple_type", tuple[int, ...], "two", "x: found 'two', expected a list"),
    ("too_short", Annotated[tuple[int, ...], Field(min_length=1)], [], "x: found [], expected at least 1 in it"),
    ("too_long", tuple[int, int], [1, 2, 3], "x: found [1, 2, 3], expected at most 2 in it"),
    ("missing", Pairs, [0.5], "x, item 2: found nothing, expected a value"),
    ("less_than", Pairs, [1.5, 0.9], "x, item 1: found 1.5, expected less than 1"),
    ("int_type", dict[str, tuple[int, ...]], {"a": [1, None]}, "x.a, item 2: found None, expected a whole number"),
    ("tuple_type", tuple[str, ...] | Literal["all"], 3, "x: found 3, expected a list or 'all'"),
    ("int_parsing", tuple[int, ...], ["a", "b", "c"], "x, item 1: found 'a', expected a whole number (and 2 more)"),
]  # fmt: skip


def refused(annotation: Any, value: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        create_model("Outer", x=(annotation, ...)).model_validate({"x": value})
    return caught.value


@pytest.mark.parametrize(("kind", "annotation", "value", "sentence"), CASES)
def test_a_refused_value_has_place_found_and_expected(kind: str, annotation: Any, value: Any, sentence: str):
    error = refused(annotation, value)
    assert error.errors()[0]["type"] == kind
    assert refusal(error) == sentence


def test_a_kind_without_words_keeps_those_of_pydantic():
    error = refused(Timing, "odd").errors()[0] | {"type": "of_a_later_release"}
    assert expected(error) == error["msg"]  # pyright: ignore[reportArgumentType]


def test_every_kind_with_words_is_tried_here():
    assert {kind for kind, *_ in CASES} == WORDS.keys()
