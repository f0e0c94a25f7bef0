"""Load of this machine's GPUs while a run goes on, as `nvidia-smi` samples it every second."""

import shutil
import subprocess
import threading
from types import TracebackType

_COMMAND = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop=1")


class GpuLoad:
    """Sampler of all GPUs of this machine; without `nvidia-smi` it has no samples. A context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._sum, self._count = 0.0, 0

    def __enter__(self) -> "GpuLoad":
        """Start to sample."""
        if shutil.which(_COMMAND[0]) is not None:
            self._process = subprocess.Popen(_COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            threading.Thread(target=self._read, args=(self._process,), name="gpu-load", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the sampler. One whose driver was killed ends with its next sample, which nobody takes."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def take(self) -> float | None:
        """Return the mean share of time in which the GPUs were busy since the last call; None without a sample."""
        with self._lock:
            mean = self._sum / self._count / 100 if self._count else None
            self._sum, self._count = 0.0, 0
        return mean

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                busy = float(line)
            except ValueError:  # "[N/A]", of a GPU that is split
                continue
            with self._lock:
                self._sum, self._count = self._sum + busy, self._count + 1
