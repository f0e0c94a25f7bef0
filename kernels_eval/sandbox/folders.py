"""Folders that a candidate wrote to."""

import shutil
import subprocess
from pathlib import Path


def remove_folder(folder: str | Path) -> None:
    """Remove a folder, however deep it is; what cannot be removed stays."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # Python before 3.13 calls itself for each level
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)
