"""Waits of a device for host code within a call: values that it reads, synchronisations, uploads.

Each stands among the call's launches, as one that no processor runs. After each the host launches what follows while
the device has nothing to do. The times are in `kernels_eval.cost.hardware`.
"""

from kernels_eval.cost.launch import HostWait, Launch


def waiting(wait: HostWait, nbytes: int = 0) -> Launch:
    """Return a wait as a launch. `nbytes`: what is uploaded."""
    return Launch(kernel=f"host: {wait}", programs=0, host_wait=wait, given_bytes=nbytes)
