"""All processes with a candidate's source: its lines."""

import io


def lines_of(source: str) -> list[str]:
    """Return a file's lines as Python numbers them, each with its end. `splitlines` splits at a form feed as well."""
    return io.StringIO(source, newline=None).readlines()
