"""CPU worker: refuses launches that a GPU could not run: grid, threads, and offsets of 32 bits, at the full size."""

from collections.abc import Collection, Sequence

from kernels_eval.cost.launch import Launch
from kernels_eval.cost.limits import limit_of_index, limit_of_launch
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.verdict import Status, Verdict


def check_limits(
    launches: Sequence[Launch], targets: Collection[str], extended: Sequence[tuple[Launch, Launch, Launch]] = ()
) -> None:
    """Raise CandidateFailedError if launches exceed a limit of one of the targets.

    `launches`: those of the full size. `extended`: each launch at two sizes, and its counts at the full size.
    """
    found = [limit_of_launch(launch, targets) for launch in launches]
    if [launch.kernel for launch in launches] == [full.kernel for _, _, full in extended]:
        found += [limit_of_index(*each) for each in extended]
    exceeded = next(filter(None, found), None)
    if exceeded is not None:
        raise CandidateFailedError(Status.RUNTIME_ERROR, *exceeded)


def limit_failure(
    launches: Sequence[Launch], targets: Collection[str], extended: Sequence[tuple[Launch, Launch, Launch]] = ()
) -> Verdict | None:
    """Return the verdict of `check_limits`, or None if the launches fit every target."""
    try:
        check_limits(launches, targets, extended)
    except CandidateFailedError as failed:
        return failed.verdict(compiled=True)
    return None
