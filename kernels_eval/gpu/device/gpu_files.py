"""Device files of the machine's GPUs: candidates' processes reach their own GPU's, and no other one's.

Besides, `cuInit` asks about each GPU whose file it can open, for 20 ms on an H100, and holds a lock of the driver
meanwhile for which all processes of the host wait (docs/gpu-judge-measurements.md).
"""

import re
from pathlib import Path

_GPUS = Path("/proc/driver/nvidia/gpus")
"""One folder for each GPU, with a file `information`."""
_DEVICES = Path("/dev")
_UUID, _MINOR = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE), re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_FILE = re.compile(r"nvidia\d+")


def file_of(uuid: str) -> str | None:
    """Return the device file of the GPU with this UUID (`GPU-…`); None if the driver lists no such GPU."""
    for information in _GPUS.glob("*/information"):
        text = information.read_text(encoding="utf-8")
        found, minor = _UUID.search(text), _MINOR.search(text)
        if found is not None and minor is not None and found[1] == uuid:
            return str(_DEVICES / f"nvidia{minor[1]}")
    return None


def files_of_others(uuid: str) -> list[str]:
    """Return the device files of all other GPUs; none if the driver does not list this one."""
    own = file_of(uuid)
    if own is None:
        return []
    return sorted(str(path) for path in _DEVICES.glob("nvidia*") if _FILE.fullmatch(path.name) and str(path) != own)
