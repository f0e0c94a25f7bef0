"""The folder of verdicts that the runs of one folder share, `<runs_dir>/verdicts/<code version of the judge>/`.

Its files are those of `kernels_eval.pool.verdict_cache`: addressed by kernel, problem, settings and the versions of
Triton and PyTorch, written whole or not at all, never a fault of the machine. A judge of other code has a folder to
itself: what it found is not known to hold for this one.
"""

from collections.abc import Iterator
from pathlib import Path

from kernels_eval.config import JudgeConfig
from tasks.pipeline.code_version import code_version

FOLDER = "verdicts"


def verdict_folder(runs_dir: Path) -> Path:
    """Return the folder of the verdicts of this judge."""
    return runs_dir / FOLDER / code_version("kernels_eval.judge")


def with_kept_verdicts(judge: JudgeConfig, runs_dir: Path) -> JudgeConfig:
    """Return the settings with the folder of verdicts as `cache_dir`, unless one is set or a GPU may time kernels.

    An estimate follows from the kernel and the problem; a measured time is of one moment, and is measured anew.
    """
    if judge.cache_dir is not None or judge.device != "cpu":
        return judge
    return judge.model_copy(update={"cache_dir": str(verdict_folder(runs_dir).resolve())})


def outdated_folders(runs_dir: Path) -> Iterator[Path]:
    """Yield the folders of verdicts of other judges."""
    if not (runs_dir / FOLDER).is_dir():
        return
    current = verdict_folder(runs_dir)
    yield from (folder for folder in sorted((runs_dir / FOLDER).iterdir()) if folder != current)
