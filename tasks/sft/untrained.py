"""Untrained model of the policy's shape, with which an engine's servers start while SFT trains."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tasks.models.config import ModelConfig
from tasks.pipeline.references import SftDataRef
from tasks.rollout.config import RolloutConfig
from tasks.training.config import EngineConfig


def start_servers_beside_sft(
    data: SftDataRef, model: ModelConfig, rollout: RolloutConfig, engine: EngineConfig, agents: Sequence[str] = ()
) -> bool:
    """Have the engine's servers start, if the rollouts start any and the cluster has the GPUs for them and for SFT.

    Returns at once: whether they start. `engine`: that of SFT; `agents`: those of a team that have servers of their own
    each. They do not if Ray is not running yet, as in a run that goes on with SFT: all stages before it were cached.
    """
    import ray

    from tasks.rollout.engines.kind import kind_of
    from tasks.rollout.process import start_servers

    started = kind_of(rollout).servers(rollout, max(len(agents), 1))
    if not started or not ray.is_initialized():
        return False
    servers = started * rollout.sglang.gpus_per_server
    ranks = engine.ranks * engine.gpus_per_rank
    if servers + ranks + rollout.gpus > float(ray.cluster_resources().get("GPU", 0)):
        return False  # they take turns on the same GPUs
    start_servers(rollout, partial(write_untrained, data.path.resolve(), model), agents)
    return True


def write_untrained(data: Path, model: ModelConfig, folder: Path) -> Path:
    """Write a model and tokenizer like those that SFT on `data` makes, untrained; returns their folder.

    A pretrained model is not written again: its own folder is returned.
    """
    from tasks.models.policy import new_policy, save_policy
    from tasks.sft.conversations import learn_tokenizer, read_conversations

    if model.pretrained is not None:
        return Path(model.pretrained)
    tokenizer = learn_tokenizer(read_conversations(data), model.vocabulary, folder)
    save_policy(new_policy(model, tokenizer), tokenizer, folder)
    return folder
