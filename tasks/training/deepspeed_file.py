"""The user's DeepSpeed JSON file (`update.deepspeed`), as it is checked before a run and read by every rank."""

from pathlib import Path
from typing import Any, cast

from kernels_eval.errors import InputError
from tasks.pipeline.json_file import read_json_object

RESERVED = {
    "train_batch_size": "update.optimizer_steps",
    "train_micro_batch_size_per_gpu": "update.tokens_per_rank",
    "gradient_accumulation_steps": "update.tokens_per_rank",
    "gradient_clipping": "update.gradient_clip",
    "optimizer": "update.learning_rate",
    "scheduler": "update.schedule",
    "bf16": "model.dtype",
    "fp16": "model.dtype",
}
"""Keys that a file may not set, and the setting that decides instead."""


def read_deepspeed_file(path: str) -> dict[str, Any]:
    """Return a DeepSpeed JSON file; raises InputError if it is invalid, or sets a key of `RESERVED`."""
    given = read_json_object(Path(path), "update.deepspeed")
    for key, setting in RESERVED.items():
        if key in given:
            raise InputError(f"update.deepspeed: {path}: {key} is not the file's to set; set {setting} instead")
    return given


def stage_of(path: str | None, zero_stage: int) -> int:
    """Return the ZeRO stage in force: the file's, if it sets one."""
    if path is None:
        return zero_stage
    optimization = read_deepspeed_file(path).get("zero_optimization", {})
    if not isinstance(optimization, dict):
        raise InputError(f"update.deepspeed: {path}: zero_optimization: found {optimization!r}, expected an object")
    stage = cast(dict[str, Any], optimization).get("stage", zero_stage)
    if stage not in (0, 1, 2, 3):
        raise InputError(f"update.deepspeed: {path}: zero_optimization.stage: found {stage!r}, expected 0, 1, 2 or 3")
    return int(stage)


def stage_on(ranks: int, path: str | None, zero_stage: int) -> int:
    """Return the ZeRO stage in force on so many ranks.

    One rank has nobody to share weights with: ZeRO-3 would gather each module's from itself, in each pass, which on
    thin layers takes 2.7 times as long (28 layers with recomputation, a CPU). A file may have other reasons for it.
    """
    return stage_of(path, min(zero_stage, 2) if ranks == 1 and path is None else zero_stage)


def offloaded_share(path: str | None) -> float:
    """Return the share of the optimizer's state that a file keeps in host memory."""
    optimization = {} if path is None else read_deepspeed_file(path).get("zero_optimization", {})
    offload = optimization.get("offload_optimizer", {}) if isinstance(optimization, dict) else {}
    if not isinstance(offload, dict) or offload.get("device", "none") == "none":
        return 0.0
    share = offload.get("ratio", 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise InputError(f"update.deepspeed: {path}: offload_optimizer.ratio: found {share!r}, expected 0 to 1")
    return float(share)
