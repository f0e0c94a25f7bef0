"""`model.pretrained: megatron:PATH`: the checkpoint converted once into a folder that later runs find again."""

from pathlib import Path

from extras.convert.convert import Conversion, ConvertOptions, GgufConversion, NamedCopy, prepare
from kernels_eval.errors import InputError
from tasks.models.config import ModelConfig
from tasks.pipeline.code_version import content_digest
from tasks.pipeline.store import digest_of, read_manifest


def converted_policy(model: ModelConfig, cache: Path) -> Path:
    """Return the Hugging Face folder of a `megatron:` checkpoint, below `cache`; convert it if it is not there yet.

    Its name is the content of the checkpoint and of `model.like`. Raises InputError if it cannot be converted.
    """
    checkpoint = model.megatron
    if checkpoint is None:
        raise InputError(f"model.pretrained: found {model.pretrained}, expected megatron:PATH")
    conversion = checked_conversion(model)
    content = [content_digest(path) for path in (checkpoint, conversion.companions) if path is not None]
    destination = cache.resolve() / digest_of(content)
    if read_manifest(destination) is None:
        conversion.write(destination)
    return destination


def checked_conversion(model: ModelConfig) -> Conversion | NamedCopy | GgufConversion:
    """Return the conversion of a `megatron:` checkpoint to Hugging Face. Raises InputError if it lacks a part."""
    checkpoint = model.megatron
    assert checkpoint is not None
    if not checkpoint.is_dir():
        raise InputError(f"model.pretrained: no such folder: {checkpoint}")
    conversion = prepare(checkpoint, ConvertOptions(like=None if model.like is None else Path(model.like)))
    if conversion.companions is None or not any(conversion.companions.glob("tokenizer*")):
        raise InputError(
            f"model.pretrained: {checkpoint}: expected a tokenizer beside it, found none; "
            "name a Hugging Face folder of the model in model.like"
        )
    return conversion
