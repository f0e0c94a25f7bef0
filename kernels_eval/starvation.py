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
