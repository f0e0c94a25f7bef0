"""Finished episodes of a rollout that did not end: its next attempt takes them over instead of playing them again.

They lie in the stage's work folder, published in parts, and are removed once the batch is published. The unit is the
cohort (tasks.rollout.episode_loop), which is taken over whole or played whole: batches of the engine stay what they
were, and so does every token.
"""

import asyncio
import logging
import shutil
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kernels_eval.errors import InputError, first_line
from tasks.pipeline.store import MANIFEST
from tasks.trajectories.schema import Termination, Trajectory

logger = logging.getLogger("kernelmill.rollout")
WRITE_EVERY_S = 10.0
"""A kill costs at most the episodes that ended in this time."""


class KeptEpisodes:
    """Finished episodes of one rollout, in a folder."""

    def __init__(self, folder: Path, run_id: str, gamma: float, write_every_s: float = WRITE_EVERY_S) -> None:
        """`run_id`: of the run that goes on, which may not be the one that began. `gamma`: discount of returns."""
        self._folder, self._gamma, self._write_every_s = folder, gamma, write_every_s
        self._found = {each.trajectory_id: replace(each, run_id=run_id) for each in _readable(folder)}
        self._unwritten: list[Trajectory] = []
        self._written_at = float("-inf")
        self._writing = asyncio.Lock()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of the episodes that an earlier attempt has finished."""
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def take(self, trajectory_ids: Sequence[str]) -> list[Trajectory] | None:
        """Return the episodes with these ids; None unless all of them are here."""
        found = [self._found[name] for name in trajectory_ids if name in self._found]
        return found if len(found) == len(trajectory_ids) else None

    async def keep(self, cohort: Sequence[Trajectory]) -> None:
        """Keep a finished cohort, unless the machine failed in one of its episodes: that one deserves a second try."""
        if any(each.termination is Termination.INFRASTRUCTURE_ERROR for each in cohort):
            return
        self._unwritten += cohort
        if time.monotonic() - self._written_at >= self._write_every_s and not self._writing.locked():
            async with self._writing:
                await asyncio.to_thread(self._publish, self._next_part())

    def write(self) -> None:
        """Write what is not written yet. An error of the disk is logged: the rollout needs none of this."""
        self._publish(self._next_part())

    def _next_part(self) -> list[Trajectory]:
        """Return what is to be written now; runs where episodes are added, never in the thread that writes."""
        part, self._unwritten = self._unwritten, []
        self._written_at = time.monotonic()
        return part

    def _publish(self, part: list[Trajectory]) -> None:
        from tasks.trajectories.writer import write_trajectories

        if part:
            try:
                write_trajectories(part, self._gamma, self._folder / uuid.uuid4().hex)
            except OSError as error:
                logger.warning("%s: %d finished episodes not kept: %s", self._folder, len(part), error)

    def remove(self) -> None:
        """Remove all of them, from the disk too."""
        self._unwritten = []
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def kept_episodes(folder: Path | None, run_id: str, gamma: float) -> Generator[KeptEpisodes | None]:
    """Yield the finished episodes in a folder; None: none are kept. If the block fails they stay, else they go."""
    if folder is None:
        yield None
        return
    kept = KeptEpisodes(folder, run_id, gamma)
    if len(kept):
        logger.warning("%d finished episodes of an earlier attempt are taken over", len(kept))
    try:
        yield kept
    except BaseException:
        kept.write()
        raise
    kept.remove()


def _readable(folder: Path) -> list[Trajectory]:
    """Return the episodes of all published parts. A damaged one goes, and its episodes are played again."""
    from tasks.pipeline.integrity import damage_of
    from tasks.trajectories.reader import load_trajectories

    found: list[Trajectory] = []
    for manifest in sorted(folder.glob(f"[!.]*/{MANIFEST}")):
        part = manifest.parent
        try:
            if damage := damage_of(part):
                raise InputError(damage)
            found += load_trajectories(part)
        except (InputError, OSError) as error:
            logger.warning("finished episodes are played again: %s", first_line(error))
            shutil.rmtree(part, ignore_errors=True)
    return found
