"""Errors of the file system that safetensors and tokenizers report as errors of their own, and those without a file."""

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def disk_errors(folder: Path) -> Generator[None]:
    """Raise the OSError that a library in Rust met while it wrote into `folder`; its text ends in `(os error 28)`.

    An OSError of a file's own write gets the folder's name.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(folder)
        raise
    except Exception as error:  # tokenizers raises no class of its own
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(folder)) from None
