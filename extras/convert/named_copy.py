"""Conversion of a DeepSpeed checkpoint to a Hugging Face folder: every tensor by its own name, of any model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from extras.convert.huggingface import write_companions
from extras.convert.memory_plan import MemoryPlan, Progress
from extras.convert.origin import Origin
from extras.convert.zero import ZeroCheckpoint
from tasks.models.safetensors_stream import Planned, SafetensorsStream
from tasks.pipeline.store import publish


@dataclass(frozen=True)
class NamedCopy:
    """A conversion that is ready to be written."""

    origin: Origin
    dtype: torch.dtype | None
    """Type of the written weights; None: as they are stored."""
    config: Mapping[str, Any]
    companions: Path | None
    store: ZeroCheckpoint

    @property
    def memory(self) -> MemoryPlan:
        """Planned memory: pieces, whole and written form of the largest tensor."""
        stored = self.store.tensors().values()
        written = [tensor.bytes for tensor in self._planned()]
        return MemoryPlan(sum(written), 3 * max(tensor.bytes for tensor in stored), max(self.store.shard_sets))

    def write(self, destination: Path, progress: Progress = lambda _done, _all: None) -> None:
        """Write the folder and publish it as `destination`."""
        planned = self._planned()
        with publish(destination, {"source": str(self.origin.root), "format": self.origin.format.value}) as folder:
            write_companions(folder, self.companions, self.config, planned[0].dtype)
            stream = SafetensorsStream(folder, planned)
            for done, tensor in enumerate(planned, start=1):
                stream.write(tensor.name, self.store.get(tensor.name).to(tensor.dtype))
                self.store.release()
                progress(done, len(planned))
            stream.close()

    def _planned(self) -> list[Planned]:
        return [
            Planned(tensor.name, self.dtype or tensor.dtype, tensor.shape) for tensor in self.store.tensors().values()
        ]
