"""Full disks: what safetensors and tokenizers raise is the OSError that they met."""

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from tasks.models.disk_errors import disk_errors


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "full"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk(full: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as raised, disk_errors(full):
        save_file({"weight": torch.zeros(2**20)}, full / "model.safetensors")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(full))


def test_a_full_disk_for_a_tokenizer(full: Path) -> None:
    (full / "filler").write_bytes(bytes(60 * 1024))
    words = Tokenizer(models.WordLevel({f"word{number}": number for number in range(5000)}, unk_token="word0"))
    with pytest.raises(OSError, match="No space left on device") as raised, disk_errors(full):
        words.save(str(full / "tokenizer.json"))
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(full))


def test_the_number_in_its_text_counts(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output error") as raised, disk_errors(tmp_path):
        raise SafetensorError("Error while serializing: I/O error: Input/output error (os error 5)")
    assert raised.value.errno == errno.EIO


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(SafetensorError, match="HeaderTooLarge"), disk_errors(tmp_path):
        raise SafetensorError("Error while deserializing header: HeaderTooLarge")
