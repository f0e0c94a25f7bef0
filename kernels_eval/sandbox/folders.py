"""Folders that a candidate wrote to."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path


def remove_folder(folder: str | Path) -> None:
    """Remove a folder, however deep it is; what cannot be removed stays."""
    with contextlib.suppress(RecursionError):  # Python before 3.13 calls itself for each level, with a descriptor each
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)
