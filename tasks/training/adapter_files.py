"""Files of an adapted policy: the merged policy, an ordinary Hugging Face model, and in it `adapter/`.

`adapter/` holds PEFT's files, and `base.json`: the path of the unadapted policy from there. An update goes on from base
and adapter, never from merged weights, which have been rounded; servers of the base may be given the adapter alone.
"""

import os
from pathlib import Path

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.pipeline.references import CheckpointRef
from tasks.training.config import LoraConfig

ADAPTER_FOLDER = "adapter"
BASE_FILE = "base.json"
WEIGHTS_FILE = "adapter_model.safetensors"


class AdapterBase(FrozenModel):
    """The policy that an adapter belongs to, and the adapter's shape."""

    uri: str
    digest: str
    lora: LoraConfig


def adapter_base(folder: Path) -> AdapterBase | None:
    """Return the base of a checkpoint's `adapter/`; None if it has none. Raises InputError if it cannot be read."""
    file = folder / ADAPTER_FOLDER / BASE_FILE
    if not file.exists():
        return None
    try:
        found = AdapterBase.model_validate_json(file.read_text(encoding="utf-8"))
        return found.model_copy(update={"uri": os.path.normpath(folder.resolve() / found.uri)})
    except ValueError as error:
        raise InputError(f"{file}: expected uri, digest and shape of the adapter's base: {error}") from error


def base_of(policy: CheckpointRef, lora: LoraConfig) -> AdapterBase:
    """Return the unadapted policy that `policy` goes on from: itself, if it has no adapter yet."""
    found = adapter_base(policy.path)
    if found is None:
        return AdapterBase(uri=policy.uri, digest=policy.digest, lora=lora)
    if found.lora != lora:
        raise InputError(
            f"update.lora: found {lora.model_dump()}, but {policy.path} has an adapter of {found.lora.model_dump()}; "
            "an adapter's shape stays as it began"
        )
    if not (Path(found.uri) / "config.json").exists():
        raise InputError(f"{policy.path / ADAPTER_FOLDER / BASE_FILE}: the base policy is no longer at {found.uri}")
    return found
