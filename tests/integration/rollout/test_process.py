"""The rollout's process: what it raises reaches the driver as what it is."""

import errno
from collections.abc import Iterator

import pytest

from tasks.rollout import process


def test_a_full_disk_in_the_process_is_known_as_one(ray_local: None, monkeypatch: pytest.MonkeyPatch):
    import ray

    @ray.remote(num_cpus=0)
    class Process:
        def write(self) -> Iterator[int]:
            yield 1
            raise OSError(errno.ENOSPC, "Error writing bytes to file")

    worker = Process.remote()
    monkeypatch.setattr(process, "_worker", lambda _gpus: worker)
    messages = process.messages_of("write", 0.0)
    assert next(messages) == 1
    with pytest.raises(OSError, match="Error writing bytes") as caught:
        next(messages)
    assert type(caught.value) is OSError
    assert caught.value.errno == errno.ENOSPC
