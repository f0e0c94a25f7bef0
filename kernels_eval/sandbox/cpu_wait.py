"""How long a process had to wait for a core because others had them all: time on the clock that is not its own.

On a machine that does something else beside judging, a limit on wall time alone ends honest kernels that were never let run.
"""


def starved_s(process: int) -> float:
    """Return the seconds that a process's main thread was ready to run and did not; 0 where the system does not tell."""
    try:
        with open(f"/proc/{process}/schedstat") as file:  # noqa: PTH123 (pathlib is slower, and this is on every verdict's path)
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def starved_together(owner: int) -> dict[int, float]:
    """Return the seconds that a process, its fork servers' children and they themselves starved so far, by process."""
    fork_servers = _children(owner)
    family = [owner, *fork_servers, *(child for fork_server in fork_servers for child in _children(fork_server))]
    return {process: starved_s(process) for process in family}


def starved_since(before: dict[int, float], owner: int) -> float:
    """Return the seconds that they starved since then; those that were born or have ended in between count for what is seen."""
    now = starved_together(owner)
    return sum(seconds - before.get(process, 0.0) for process, seconds in now.items())


def _children(process: int) -> list[int]:
    """Return what a process's main thread has forked; nothing where the system does not list it."""
    try:
        with open(f"/proc/{process}/task/{process}/children") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except OSError:
        return []
