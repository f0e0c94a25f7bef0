"""Parts of a bundle: files packed into folders of a limited size, those that are larger cut into numbered pieces."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from extras.airgap.install import COPY_BYTES, sha256_of
from tasks.pipeline.digests import side_by_side

PREFIX = "part-"


@dataclass(frozen=True)
class Piece:
    """A file of a part: a whole file of the bundle, or bytes of one that is larger than a part."""

    file: str
    name: str
    start: int
    size: int


def cut(name: str, size: int, limit: int) -> list[Piece]:
    """Return the pieces of a file, in order, each of at most `limit` bytes; the file itself if it fits."""
    if size <= limit:
        return [Piece(name, name, 0, size)]
    starts = range(0, size, limit)
    return [Piece(name, f"{name}.{k:03}", at, min(limit, size - at)) for k, at in enumerate(starts, 1)]


def pack(sizes: dict[str, int], limit: int) -> list[list[Piece]]:
    """Return which pieces each part holds: the largest first, each into the first part that has room for it."""
    pieces = [piece for name, size in sizes.items() for piece in cut(name, size, limit)]
    parts: list[list[Piece]] = []
    free: list[int] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.size, piece.name)):
        place = next((k for k, room in enumerate(free) if room >= piece.size), None)
        if place is None:
            place = len(parts)
            parts.append([])
            free.append(limit)
        parts[place].append(piece)
        free[place] -= piece.size
    return parts


def write_parts(source: Path, out: Path, parts: list[list[Piece]]) -> list[dict[str, object]]:
    """Move files into the folders of their parts, and return the manifest's entries."""
    entries: dict[str, dict[str, object]] = {}
    placed: dict[str, list[tuple[int, dict[str, object]]]] = {}
    files = sorted({piece.file for part in parts for piece in part})
    for file, digest in zip(files, side_by_side(sha256_of, [source / file for file in files]), strict=True):
        entries[file] = {"name": file, "size": (source / file).stat().st_size, "sha256": digest}
        placed[file] = []
    for number, part in enumerate(parts, 1):
        folder = out / f"{PREFIX}{number}"
        folder.mkdir(exist_ok=True)
        for piece in part:
            whole = piece.name == piece.file
            if whole:
                (source / piece.file).rename(folder / piece.name)
            else:
                copy_range(source / piece.file, folder / piece.name, piece.start, piece.size)
            digest = entries[piece.file]["sha256"] if whole else sha256_of(folder / piece.name)
            entry: dict[str, object] = {"part": folder.name, "name": piece.name, "size": piece.size, "sha256": digest}
            placed[piece.file].append((piece.start, entry))
    for file, pieces in placed.items():
        entries[file]["pieces"] = [entry for _, entry in sorted(pieces, key=lambda item: item[0])]
        (source / file).unlink(missing_ok=True)
    return list(entries.values())


def copy_range(source: Path, target: Path, start: int, size: int) -> None:
    """Write some of a file's bytes to a file of its own."""
    with source.open("rb") as given, target.open("wb") as written:
        given.seek(start)
        while size > 0 and (block := given.read(min(size, COPY_BYTES))):
            written.write(block)
            size -= len(block)


def gather(out: Path, into: Path) -> None:
    """Move what lies in parts back into one folder, pieces joined: a bundle can then be made anew from it."""
    folders = sorted(path for path in out.glob(f"{PREFIX}*") if path.is_dir())
    files = [path for folder in folders for path in folder.iterdir()]
    pieces = [path for path in files if path.suffix[1:].isdigit() and path.stem.endswith((".whl", ".zip", ".xz"))]
    for path in files:
        if path not in pieces:
            path.replace(into / path.name)
    # A whole file is still there if an earlier call was interrupted as it wrote the pieces.
    for whole in {path.stem for path in pieces if not (into / path.stem).exists()}:
        join((path for path in sorted(pieces, key=lambda path: path.name) if path.stem == whole), into / whole)
    for folder in folders:
        shutil.rmtree(folder)


def join(pieces: Iterable[Path], target: Path) -> None:
    """Write pieces one after another to a file."""
    with target.open("wb") as written:
        for piece in pieces:
            with piece.open("rb") as given:
                shutil.copyfileobj(given, written, COPY_BYTES)
