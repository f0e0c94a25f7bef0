"""Plurals of nouns in lines for people."""

_IRREGULAR = {"trajectory": "trajectories"}


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 iteration`, `2 iterations`, `1,200 held-out problems`."""
    return f"{number:,} {noun if number == 1 else _IRREGULAR.get(noun, noun + 's')}"
