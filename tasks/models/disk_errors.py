"""Errors of the file system that safetensors reports as errors of its own."""

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def disk_errors(folder: Path) -> Generator[None]:
    """Raise the OSError that safetensors met while it wrote into `folder`; its text ends in `(os error 28)`."""
    try:
        yield
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(folder)) from None
