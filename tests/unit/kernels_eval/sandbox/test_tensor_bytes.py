"""Memory of payloads: the same bytes, where a device would put them."""

import pytest

from kernels_eval.sandbox.tensor_bytes import TensorForm, aligned, tensor_from


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4096, 5000])
def test_aligned_bytes_are_the_same_bytes(size: int) -> None:
    payload = bytearray(number % 251 for number in range(size))
    assert bytes(aligned(payload)) == bytes(payload)


def test_a_tensor_at_an_aligned_offset_begins_with_a_sector() -> None:
    for _ in range(20):
        memory = aligned(bytearray(1000))
        assert tensor_from(memory, TensorForm(dtype="float32", shape=(4,)), 256).data_ptr() % 32 == 0
