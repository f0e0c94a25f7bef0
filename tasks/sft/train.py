"""Supervised fine-tuning: from judged conversations to the first policy.

Published folder: the policy in Hugging Face format (the last one, or with `sft.early_stop` the best) and
`metrics.parquet` with one row an optimizer step. It holds no optimizer state: RL starts with its own. A killed run
resumes from its last interim checkpoint and ends in the same weights, to the bit.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.frozen import decisive_part
from tasks.models.config import ModelConfig
from tasks.models.policy import check_architecture
from tasks.models.tokenizer import load_tokenizer
from tasks.pipeline.references import CheckpointRef, Progress, SftDataRef
from tasks.pipeline.store import digest_of, measured, publish, published_digest
from tasks.pipeline.tables import METRICS_FILE
from tasks.sft.config import SftConfig
from tasks.sft.conversations import SftSequences, encode_conversations, learn_tokenizer, read_conversations
from tasks.sft.program import SftJob, sft_program
from tasks.training.config import EngineConfig, check_heads
from tasks.training.faults import with_smaller_batches
from tasks.training.metrics import OnSteps, record, unseen
from tasks.training.ranks import make_room, prepare_ranks, run_on_ranks
from tasks.training.retention import find_interim


def train_sft(
    data: SftDataRef,
    model: ModelConfig,
    config: SftConfig,
    engine: EngineConfig,
    seed: int,
    destination: Path,
    work_dir: Path,
    progress: Progress,
    initial: CheckpointRef | None = None,
    roles: tuple[str, ...] = (),
    on_steps: OnSteps = unseen,
) -> CheckpointRef:
    """Train a policy on the used pairs of `data` and publish it; `roles`: on those that these agents answer.

    A new tokenizer is learned from the pairs of all agents: they share it.
    `initial` goes on from a policy (and its tokenizer); otherwise `model.pretrained` is loaded, or a new model and a
    tokenizer are made. `engine` says on how many ranks, with how many threads and tokens a micro-batch. Interim
    checkpoints lie in `work_dir`. Where memory does not suffice, the token budget is halved, once. Raises InputError
    for data, a model or a checkpoint that does not fit, InfrastructureError if a rank dies.
    """
    if model.pretrained is None:
        check_heads(model.heads, model.key_value_heads, engine.context_parallel)
    if initial is not None:
        check_architecture(initial.path, model)
    prepare_ranks(engine)  # while the conversations are encoded
    conversations = read_conversations(data.path, roles)
    source = initial.path if initial is not None else model.pretrained
    if source is not None:
        tokenizer_path = Path(source)
        tokenizer = load_tokenizer(tokenizer_path)
    else:
        tokenizer_path = work_dir / "tokenizer"
        of_all = read_conversations(data.path) if roles else conversations
        tokenizer = learn_tokenizer(of_all, model.vocabulary, tokenizer_path)
    sequences = encode_conversations(
        tokenizer, conversations, config.max_tokens, config.validation_fraction, seed, model.template
    )
    _check_sequences(sequences, model, config)
    fingerprint = digest_of(
        [data.digest, decisive_part(model), decisive_part(config), seed, initial and initial.digest, *roles]
    )
    metadata = {"data": data.digest, "conversations": len(sequences.training), "too_long": sequences.dropped}
    with publish(destination, metadata, {METRICS_FILE: measured}) as folder:

        def run(engine: EngineConfig) -> Iterator[dict[str, Any]]:
            job = SftJob(
                sequences=sequences,
                tokenizer=tokenizer_path,
                model=model,
                initial=None if initial is None else initial.path,
                config=config,
                engine=engine,
                seed=seed,
                interim=find_interim(work_dir, fingerprint),
                folder=folder,
            )
            return run_on_ranks(engine, sft_program, job)

        record(with_smaller_batches(engine, run), folder, progress, on_steps)
    if engine.gpus_per_rank > 0:  # the update's engine may not fit beside this one
        make_room(engine)
    return CheckpointRef(
        uri=str(destination),
        digest=published_digest(destination),
        weight_version=0 if initial is None else initial.weight_version,
    )


def _check_sequences(sequences: SftSequences, model: ModelConfig, config: SftConfig) -> None:
    """Raise InputError if a new model has too few positions, or an early stop nothing to validate on."""
    longest = max(sequence.length for sequence in sequences.training)
    if longest > model.max_positions and model.pretrained is None:
        raise InputError(
            f"model.max_positions: {model.max_positions}, but a conversation has {longest} tokens; "
            "raise it or lower sft.max_tokens"
        )
    if config.early_stop is not None and not sequences.validation:
        raise InputError(
            "sft.early_stop: needs conversations to validate on, found none: "
            f"sft.validation_fraction = {config.validation_fraction} of {len(sequences.training)}; raise it"
        )
