"""Policy 0 of a run without SFT: a pretrained, usually fine-tuned model, published as it is.

The published folder has the files of a Hugging Face model, copied: a run does not change if the given folder does. The
weights are converted only if they are stored in another type than `model.dtype`.
"""

import json
import re
import shutil
from pathlib import Path

from kernels_eval.errors import InputError
from tasks.models.chat import template_family
from tasks.models.config import ModelConfig
from tasks.models.policy import architecture_of, dtype_of, load_policy, save_policy
from tasks.models.tokenizer import load_tokenizer
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import publish, published_digest

_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_INDEX = "model.safetensors.index.json"
_OTHERS = (
    "config.json", "generation_config.json", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "chat_template*", "*.model",
)  # fmt: skip
_FROM_HUB = [*_OTHERS, "model*.safetensors", _INDEX]


def publish_given_policy(model: ModelConfig, destination: Path) -> CheckpointRef:
    """Publish the pretrained model as the run's first policy.

    Raises InputError if `model.pretrained` is not set, or is no causal language model with a chat template of the
    family `model.template`.
    """
    if model.pretrained is None:
        raise InputError("model.pretrained: none, expected the policy that RL starts from: sft.steps is 0")
    source = Path(model.pretrained)
    if not source.is_dir():
        source = _from_hub(model.pretrained)
    architecture_of(source)
    template_family(load_tokenizer(source), model.template)
    with publish(destination, {"pretrained": model.pretrained}) as folder:
        weights = _weight_files(source)
        if weights and dtype_of(source) == model.dtype:
            for file in weights:
                shutil.copyfile(file, folder / file.name)
        else:
            save_policy(load_policy(source, model.dtype), None, folder)
        for file in (file for pattern in _OTHERS for file in source.glob(pattern)):
            if file.is_file() and not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    return CheckpointRef(uri=str(destination.resolve()), digest=published_digest(destination))


def _weight_files(source: Path) -> list[Path]:
    """Return the index, if any, and the files of weights by their usual names; nothing if they have other names."""
    index = source / _INDEX
    if not index.is_file():
        return [file for file in sorted(source.glob("*.safetensors")) if _WEIGHTS.fullmatch(file.name)]
    try:
        named = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{index}: expected the index of a model's weights: {error}") from error
    if outside := [name for name in named if Path(name).name != name]:
        raise InputError(f"{index}: names {outside[0]!r}, expected names of files beside it")
    missing = [name for name in named if not (source / name).is_file()]
    if missing:
        raise InputError(f"{source}: {missing[0]} is missing, which {_INDEX} names")
    return [index, *(source / name for name in named)]


def _from_hub(name: str) -> Path:
    """Return the folder of a model of the hub, in Hugging Face's cache."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FROM_HUB))
    except (OSError, ValueError) as error:
        raise InputError(f"model.pretrained: {name}: not a folder, and not to be had from the hub: {error}") from error
