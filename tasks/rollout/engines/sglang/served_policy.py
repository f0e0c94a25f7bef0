"""A policy as SGLang's servers load it: the folder of its weights, or the folder of its base and its adapter."""

import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import stop_token_ids
from tasks.rollout.engines.sglang.canary import canary_prompts
from tasks.rollout.engines.sglang.generation import ServerRequest
from tasks.training.adapter_files import ADAPTER_FOLDER, adapter_base

_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_SHOWN_DIGITS = 16
"""Of a policy's digest, in the name of its adapter."""


@dataclass(frozen=True, slots=True)
class ServedAdapter:
    """An adapter beside the weights that a server holds."""

    name: str
    """Of one policy: another one's adapter has another name."""
    folder: Path
    """PEFT's files."""


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A policy as servers load it."""

    path: Path
    """The checkpoint."""
    digest: str
    """Of the checkpoint."""
    weights: Path
    """Folder of the weights that servers hold: the checkpoint, or its base where they take adapters."""
    folder: Path
    """The same for the servers: that folder, or links to its model files."""
    version: str
    """Label of the servers' weights: the digest of the checkpoint, or of its base."""
    adapter: ServedAdapter | None
    """Adapter that makes these weights the policy, where servers take adapters and it has one."""
    stop_token_ids: tuple[int, ...]
    """Sorted: tokens that end a turn."""
    prompts: tuple[tuple[int, ...], ...]
    """The canary's."""
    context_tokens: int

    def request(self, prompt_token_ids: tuple[int, ...], seed: int, sampling: SamplingConfig) -> ServerRequest:
        """Return a new request that only this policy may answer."""
        return ServerRequest(
            uuid.uuid4().hex,
            prompt_token_ids,
            seed,
            sampling,
            self.stop_token_ids,
            weight_version=self.version,
            adapter=self.adapter.name if self.adapter else None,
        )

    def remove_links(self) -> None:
        """Remove the folder of links, if there is one."""
        if self.folder != self.weights:
            shutil.rmtree(self.folder, ignore_errors=True)


def read_policy(policy: CheckpointRef, tokenizer: Any, prompts: int, adapter_prefix: str = "") -> ServedPolicy:
    """Read a policy for servers; `prompts`: number of the canary's.

    `adapter_prefix`: beginning of its adapter's name; empty if the servers take none. Raises InputError if the folder
    holds no policy.
    """
    from transformers import AutoConfig

    from tasks.models.policy import architecture_of

    path = policy.path.resolve()
    architecture_of(path)
    positions = int(AutoConfig.from_pretrained(str(path)).max_position_embeddings)
    base = adapter_base(path) if adapter_prefix else None
    weights = path if base is None else Path(base.uri).resolve()
    name = f"{adapter_prefix}{policy.digest[:_SHOWN_DIGITS]}"
    return ServedPolicy(
        path=path,
        digest=policy.digest,
        weights=weights,
        folder=_loadable(weights),
        version=policy.digest if base is None else base.digest,
        adapter=None if base is None else ServedAdapter(name, path / ADAPTER_FOLDER),
        stop_token_ids=stop_token_ids(path, tokenizer),
        prompts=tuple(canary_prompts(tokenizer, prompts, positions)),
        context_tokens=positions,
    )


def _loadable(path: Path) -> Path:
    """Return the checkpoint, or, if it holds more than the model's weights, a folder of links without the rest.

    The server loads every `*.safetensors` that it finds, and fails at the optimizer's state. The links lie beside the
    checkpoint, so that whoever sees the one sees the other.
    """
    others = {file.name for file in path.glob("*.safetensors") if not _WEIGHTS.fullmatch(file.name)}
    if not others or not any(_WEIGHTS.fullmatch(file.name) for file in path.glob("*.safetensors")):
        return path
    links = path.parent / f".serving-{path.name}-{uuid.uuid4().hex[:8]}"
    links.mkdir()
    for file in path.iterdir():
        if file.name not in others:
            (links / file.name).symlink_to(file)
    return links
