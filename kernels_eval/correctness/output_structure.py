"""What a forward call returns: tensors, alone or in tuples, lists and dictionaries, however deep."""

from typing import Any

ONE = "one object"
"""The structure of a result that is no collection."""
_MAX_RESULTS = 256


def flat(result: Any) -> tuple[list[Any], str]:
    """Return what a result holds, in order, and its structure in words that can be compared.

    Tuples and lists are the same structure, since whoever calls the model unpacks both alike. Dictionaries are in the order of their keys.
    """
    leaves: list[Any] = []
    return leaves, _gathered(result, leaves)


def _gathered(value: Any, leaves: list[Any]) -> str:
    if len(leaves) > _MAX_RESULTS:
        raise ValueError(f"more than {_MAX_RESULTS} results")
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: repr(item[0]))
        return f"a dictionary of {{{', '.join(f'{key!r}: {_gathered(item, leaves)}' for key, item in items)}}}"
    if isinstance(value, tuple | list):
        return f"a tuple or list of ({', '.join(_gathered(item, leaves) for item in value)})"
    leaves.append(value)
    return ONE
