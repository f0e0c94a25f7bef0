"""Names of the fields of named tuples in the processes that run and compile kernels."""

import pytest

from kernels_eval.trace.kernel_syntax import ForbiddenSyntaxError, checked_tree, own_field
from kernels_eval.trace.named_tuples import is_named_tuple, named_tuple, with_renamed_fields
from kernels_eval.trace.schema import KernelSource, NamedTupleClass

SOURCE = (
    "def kernel(rows, field_x):\n"
    "    é = rows.pointer + rows.shape  # rows.pointer\n"
    "    pair = Pair(pointer=rows\n"
    "        .pointer, shape=é)\n"
    "    return f(pair.pointer.pointer, field_x=field_x)\n"
)


def _kernel(source: str) -> KernelSource:
    pair = NamedTupleClass(fields=("pointer", "shape"))
    return KernelSource(number=0, name="kernel", source=source, line=7, globals={"Pair": pair}, fields=pair.fields)


def test_fields_have_names_that_no_other_value_has_in_the_tree_and_in_the_text() -> None:
    text = with_renamed_fields(SOURCE, 7, checked_tree(_kernel(SOURCE)), {"Pair"})
    assert text == (
        "def kernel(rows, field_x):\n"
        "    é = rows.field_pointer + rows.shape  # rows.pointer\n"
        "    pair = Pair(field_pointer=rows\n"
        "        .field_pointer, shape=é)\n"
        "    return f(pair.field_pointer.field_pointer, field_x=field_x)\n"
    )


def test_lines_are_those_of_python() -> None:
    source = SOURCE.replace("# rows.pointer", "# \f \u2028 rows.pointer")
    text = with_renamed_fields(source, 7, checked_tree(_kernel(source)), {"Pair"})
    assert "return f(pair.field_pointer.field_pointer, field_x=field_x)" in text


@pytest.mark.parametrize("written", ["rows.pointeｒ", "Pair(pointeｒ=rows, shape=rows)"])
def test_a_field_in_letters_that_python_normalises_is_refused_by_its_name(written: str) -> None:
    source = f"def kernel(rows):\n    x = {written}\n"
    with pytest.raises(ValueError, match="line 8: the field pointer is written with other letters"):
        with_renamed_fields(source, 7, checked_tree(_kernel(source)), {"Pair"})


@pytest.mark.parametrize("value", ["rows.handle", "rows._fields", "rows.__class__", "Pair._make", "rows.field_pointer"])
def test_what_is_no_field_stays_refused(value: str) -> None:
    with pytest.raises(ForbiddenSyntaxError, match="cannot use the attribute"):
        checked_tree(_kernel(f"def kernel(rows):\n    x = {value}\n"))


def test_a_field_is_not_assigned() -> None:
    with pytest.raises(ForbiddenSyntaxError):
        checked_tree(_kernel("def kernel(rows):\n    rows.pointer = 1\n"))


def test_a_declared_field_reaches_no_attribute_of_another_value() -> None:
    made = named_tuple((own_field("handle"), own_field("shape")))
    assert is_named_tuple(made)
    assert not is_named_tuple(tuple)
    assert made._fields == ("field_handle", "shape")  # pyright: ignore[reportAttributeAccessIssue]
