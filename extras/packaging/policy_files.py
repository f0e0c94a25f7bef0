"""The files of a policy that are needed to run it, copied and compared with what its manifest says."""

from pathlib import Path

from kernels_eval.errors import InputError
from tasks.agents.team import TEAM_FILE, is_team, members_of, write_team_file
from tasks.pipeline.digests import DIGEST_CHARACTERS, copy_hashed, sha256_of, side_by_side
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import read_manifest
from tasks.pipeline.tables import METRICS_FILE
from tasks.training.retention import ROWS_FILE

OF_TRAINING = ("optimizer", "critic", "adapter", METRICS_FILE, ROWS_FILE)
"""Folders and files that only training reads. An adapter is merged into the weights beside it."""


def copy_policy(source: Path, destination: Path) -> dict[str, str]:
    """Copy a published policy, without what only training reads, into a folder; return the SHA-256 of each file.

    Of a team, each member into a folder of its agent's name. Raises InputError, with the file's name, if the policy is
    not published, or damaged.
    """
    policy = CheckpointRef(uri=str(source), digest="")
    if not is_team(policy):
        return _copy(source, destination)
    members, copied = members_of(policy), dict[str, str]()
    for agent, member in members.items():
        copied |= {f"{agent}/{name}": digest for name, digest in _copy(member.path, destination / agent).items()}
    write_team_file({agent: (agent, member) for agent, member in members.items()}, destination)
    return copied | {TEAM_FILE: sha256_of(destination / TEAM_FILE)}


def _copy(source: Path, destination: Path) -> dict[str, str]:
    manifest = read_manifest(source)
    if manifest is None:
        raise InputError(f"{source}: expected a published policy, found no manifest")

    def copy(listed: tuple[str, str]) -> str:
        name, digest = listed
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            found = copy_hashed(source / name, destination / name)
        except FileNotFoundError as error:
            raise InputError(f"{source / name}: missing, but its policy's manifest names it") from error
        if found[:DIGEST_CHARACTERS] != digest:
            raise InputError(
                f"{source / name}: damaged: not what was published, by the SHA-256 in the manifest; "
                f"remove {source}, and `kernelmill train` makes it again"
            )
        return found

    wanted = [entry for entry in sorted(manifest["files"].items()) if entry[0].partition("/")[0] not in OF_TRAINING]
    return dict(zip((name for name, _ in wanted), side_by_side(copy, wanted), strict=True))
