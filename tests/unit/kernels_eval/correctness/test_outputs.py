"""Returned values of a forward call, taken apart."""

from kernels_eval.correctness.outputs import ONE, flat


def test_one_object_is_one_result() -> None:
    assert flat(3) == ([3], ONE)


def test_tuples_and_lists_are_alike_and_unlike_their_only_item() -> None:
    assert flat((1, [2])) == flat([1, (2,)])
    assert flat((1,))[1] != flat(1)[1]
    assert flat((1, (2,)))[1] != flat((1, 2))[1]


def test_dictionaries_are_in_the_order_of_their_keys() -> None:
    assert flat({"b": 2, "a": 1}) == flat({"a": 1, "b": 2})
    assert flat({"b": 2, "a": (1,)})[0] == [1, 2]
    assert flat({"a": 1})[1] != flat({"b": 1})[1]
