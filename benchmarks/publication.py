"""Publication of a checkpoint: GB/s, against the disk's own rate and hashlib's, measured in one process.

    python benchmarks/publication.py [--gigabytes 3] [--files 4] [--rounds 3] [--work FOLDER]

The checkpoint is one file of weights, as large as asked for, in tensors of 64 MiB; without fsync, as it is published.
Ways take turns in each round; the table has the median and the extremes of the rounds:

- `write`: the bytes alone, from memory; `write with fsync`: until the disk has them;
- `SHA-256`: hashlib over the same bytes in memory, one core;
- `written, then read`: the safetensors library writes, then hashlib reads the file;
- `published`: written by `write_weights` in `publish`, hashed meanwhile;
- `N files, one by one`, `N files, published`: files that are there already, hashed one after another and by `publish`;
- `N copies, then read`: files copied into a folder, hashed one after another, then published;
- `N copies, published`: copied as `kernelmill policy package` does, hashed meanwhile.

Exits with 1 if a digest differs from hashlib's.
"""

import argparse
import hashlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from tasks.models.weight_files import write_weights
from tasks.pipeline.digests import DIGEST_CHARACTERS, copy_hashed, sha256_of, side_by_side
from tasks.pipeline.store import publish, read_manifest

TENSOR = 16 * 2**20
"""Values of a tensor, float32."""
WEIGHTS = "model.safetensors"
METADATA = {"format": "pt"}


class Ways:
    """The ways to write and hash the same tensors. Each returns the digests that it took, by file."""

    def __init__(self, work: Path, tensors: dict[str, torch.Tensor], files: int) -> None:
        self.work = work
        self.tensors = tensors
        self.files = files

    def write(self, *, synced: bool = False) -> dict[str, str]:
        """Write the bytes alone."""
        with (self.work / WEIGHTS).open("wb", buffering=0) as file:
            for tensor in self.tensors.values():
                file.write(tensor.numpy().data.cast("B"))
            if synced:
                os.fsync(file.fileno())
        return {}

    def hash_memory(self) -> dict[str, str]:
        """Hash the bytes alone."""
        sha256 = hashlib.sha256()
        for tensor in self.tensors.values():
            sha256.update(tensor.numpy().data)
        return {}

    def written_then_read(self) -> dict[str, str]:
        """Write with the library, then read the file for its digest."""
        save_file(self.tensors, self.work / WEIGHTS, METADATA)
        return {WEIGHTS: sha256_of(self.work / WEIGHTS)[:DIGEST_CHARACTERS]}

    def published(self) -> dict[str, str]:
        """Publish a checkpoint that is hashed while it is written."""
        with publish(self.work / "published") as folder:
            write_weights(self.tensors, folder / WEIGHTS, METADATA)
        return self._found("published")

    def one_by_one(self) -> dict[str, str]:
        """Hash the files of `copied` one after another."""
        files = sorted((self.work / "shards").iterdir())
        return {file.name: sha256_of(file)[:DIGEST_CHARACTERS] for file in files}

    def side_by_side(self) -> dict[str, str]:
        """Publish the files of `shards`, which are moved into the folder."""
        with publish(self.work / "copied") as folder:
            for file in (self.work / "shards").iterdir():
                file.rename(folder / file.name)
        found = self._found("copied")
        for name in found:
            (self.work / "copied" / name).rename(self.work / "shards" / name)
        return found

    def copies_then_read(self) -> dict[str, str]:
        """Copy the files of `shards`, read each copy for its digest, then publish them."""
        with publish(self.work / "published") as folder:
            for file in sorted((self.work / "shards").iterdir()):
                shutil.copyfile(file, folder / file.name)
                sha256_of(folder / file.name)
        return self._found("published")

    def copies_published(self) -> dict[str, str]:
        """Copy the files of `shards`, hashed meanwhile, and publish them."""
        files = sorted((self.work / "shards").iterdir())
        with publish(self.work / "published") as folder:
            side_by_side(lambda file: copy_hashed(file, folder / file.name), files)
        return self._found("published")

    def make_shards(self) -> None:
        """Write the tensors into so many files."""
        (self.work / "shards").mkdir()
        names = list(self.tensors)
        for number in range(self.files):
            part = {name: self.tensors[name] for name in names[number :: self.files]}
            file = self.work / "shards" / f"model-{number}.safetensors"
            save_file(part, file, METADATA)
            with file.open("rb") as written:
                os.fsync(written.fileno())

    def _found(self, name: str) -> dict[str, str]:
        manifest = read_manifest(self.work / name)
        assert manifest is not None
        return manifest["files"]


def main() -> None:
    """Measure, print a table, compare the digests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=None, help="folder on the disk to measure")
    given = parser.parse_args()
    count = max(round(given.gigabytes * 1e9 / (4 * TENSOR)), given.files)
    one = torch.randn(TENSOR)
    tensors = {f"layer.{number:04d}": one + number for number in range(count)}
    size = count * 4 * TENSOR
    work = Path(tempfile.mkdtemp(prefix="publication-", dir=given.work))
    try:
        ways = Ways(work, tensors, given.files)
        ways.make_shards()
        steps: dict[str, Callable[[], dict[str, str]]] = {
            "write": ways.write,
            "write with fsync": lambda: ways.write(synced=True),
            "SHA-256": ways.hash_memory,
            "written, then read": ways.written_then_read,
            "published": ways.published,
            f"{given.files} files, one by one": ways.one_by_one,
            f"{given.files} files, published": ways.side_by_side,
            f"{given.files} copies, then read": ways.copies_then_read,
            f"{given.files} copies, published": ways.copies_published,
        }
        seconds, digests = measure(steps, given.rounds, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{size / 1e9:.2f} GB, {given.rounds} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| | GB/s, median | slowest | fastest |\n|---|---|---|---|")
    for name, took in seconds.items():
        rates = [size / 1e9 / each for each in took]
        print(f"| {name} | {statistics.median(rates):.2f} | {min(rates):.2f} | {max(rates):.2f} |")
    names = list(steps)[3:]
    same = all(digests[first] == digests[second] for first, second in zip(names[::2], names[1::2], strict=True))
    print(f"digests: {'equal to' if same else 'DIFFER from'} hashlib's over the finished files")
    sys.exit(0 if same else 1)


def measure(
    steps: dict[str, Callable[[], dict[str, str]]], rounds: int, work: Path
) -> tuple[dict[str, list[float]], dict[str, dict[str, str]]]:
    """Return the seconds of each step in each round, and the digests that it took last."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    digests: dict[str, dict[str, str]] = {}
    for _ in range(rounds):
        for name, step in steps.items():
            started = time.perf_counter()
            digests[name] = step()
            seconds[name].append(time.perf_counter() - started)
            clear(work)
    return seconds, digests


def clear(folder: Path) -> None:
    """Remove what a way has written, so that neither its writes nor the removal count for the next one."""
    (folder / WEIGHTS).unlink(missing_ok=True)
    shutil.rmtree(folder / "published", ignore_errors=True)


if __name__ == "__main__":
    main()
