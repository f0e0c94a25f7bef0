"""Train or held out: decided once per composition, and never changed by what else is in the set.

A composition is held out if a hash of (seed, composition) is below heldout / (train + heldout). Of a side larger than
its limit, the problems with the largest hashes are left out; they do not change sides.
"""

import hashlib
from collections.abc import Collection, Sequence

from kernels_eval.errors import InputError
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import fingerprint_digest
from tasks.problems.row import Entry, ProblemRow, Split, Tier


def hashed_split(composition: str, config: ProblemsConfig) -> Split:
    """Return the side that a composition is on, whatever else is loaded."""
    share = config.heldout / (config.train + config.heldout)
    return Split.HELDOUT if _position(config.seed, composition) < share else Split.TRAIN


def split_entries(entries: Sequence[Entry], config: ProblemsConfig) -> list[ProblemRow]:
    """Return the entries with their split, at most `config.train` and `config.heldout` of each, in their order.

    A split given by the source is kept; the source gives it for every entry or for none (InputError otherwise).
    """
    silent = next((entry for entry in entries if entry.split is None), None)
    given = next((entry for entry in entries if entry.split is not None), None)
    if silent is not None and given is not None:
        raise InputError(f"{silent.where}: expected a split, since {given.where} has one; found none")
    rows = [_row(entry, config) for entry in entries]
    kept = {
        row.problem.problem_id
        for split, limit in ((Split.TRAIN, config.train), (Split.HELDOUT, config.heldout))
        for row in sorted((row for row in rows if row.split is split), key=lambda row: _rank(row, config.seed))[:limit]
    }
    return [row for row in rows if row.problem.problem_id in kept]


def check_split(rows: Sequence[ProblemRow], needed: Collection[Split] = tuple(Split)) -> None:
    """Raise InputError unless the needed sides have problems, ids are unique, and nothing of one side is on the other.

    Neither a problem's digest (its normalised source) nor its composition may be on both sides.
    """
    sides = {split: [row for row in rows if row.split is split] for split in Split}
    for split, side in sides.items():
        if split in needed and not side:
            raise InputError(
                f"problem set: no {split} problem among {len(rows)}; load more problems, change problems.train, "
                "problems.heldout or problems.seed, or give the split in a column `split`"
            )
    ids: set[str] = set()
    for row in rows:
        if row.problem.problem_id in ids:
            raise InputError(f"problem set: problem_id {row.problem.problem_id} occurs more than once")
        ids.add(row.problem.problem_id)
    by_digest = {row.problem.digest: row for row in sides[Split.HELDOUT]}
    by_composition = {row.composition: row for row in sides[Split.HELDOUT]}
    for row in sides[Split.TRAIN]:
        for other, what in (
            (by_digest.get(row.problem.digest), "is the same program as"),
            (by_composition.get(row.composition), f"has the composition {row.composition!r} of"),
        ):
            if other is not None:
                raise InputError(
                    f"problem set: the training problem {row.problem.problem_id} {what} "
                    f"the held-out problem {other.problem.problem_id}"
                )


def _row(entry: Entry, config: ProblemsConfig) -> ProblemRow:
    # Without a composition, near-duplicates share a side by their fingerprint. If the source gives the split, only the
    # same program on both sides is refused.
    if entry.composition is not None:
        composition = entry.composition
    elif entry.split is None:
        composition = fingerprint_digest(entry.problem.source)
    else:
        composition = entry.problem.digest
    split = entry.split or hashed_split(composition, config)
    return ProblemRow(
        problem=entry.problem,
        split=split,
        composition=composition,
        reference_kernel=entry.reference_kernel,
        tier=entry.tier if split is Split.HELDOUT else Tier.STANDARD,
    )


def _rank(row: ProblemRow, seed: int) -> tuple[float, float]:
    return (_position(seed, row.composition), _position(seed, row.problem.digest))


def _position(seed: int, text: str) -> float:
    """Return a number in [0, 1) that depends on nothing but the arguments."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{text}".encode()).digest()[:6]) / 2**48
