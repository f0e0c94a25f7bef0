"""The checkpoint that a conversion starts from: its format, its folder, and where its config.json and tokenizer lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extras.convert.architecture import Architecture, architecture_in
from extras.convert.arguments import check_agreement, check_arguments, config_from
from extras.convert.formats import Format
from extras.convert.mp_rank import read_arguments, shard_files
from extras.convert.torch_dist import INDEX_FILE, read_common
from extras.convert.zero import find_states
from kernels_eval.errors import InputError
from tasks.models.config import COMPANIONS
from tasks.pipeline.json_file import read_json_object

TRACKER_FILE = "latest_checkpointed_iteration.txt"
"""Megatron's file that names the newest iteration."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint to be read."""

    format: Format
    root: Path
    """The folder that the user named."""
    folder: Path
    """The folder with the files."""

    def arguments(self) -> Any:
        """Return Megatron's arguments; None if the checkpoint has none."""
        if self.format is Format.MP_RANK:
            return read_arguments(self.folder)
        common = read_common(self.folder) if self.format is Format.TORCH_DIST else {}
        return common.get("args") if isinstance(common, dict) else None

    def companions(self, like: Path | None) -> Path | None:
        """Return the folder of config.json and tokenizer: `like`, or one that the checkpoint has or names."""
        if like is not None:
            if not (like / "config.json").is_file():
                raise InputError(f"--like (model.like): {like}: expected a folder with config.json, found none")
            return like
        named = getattr(self.arguments(), "tokenizer_model", None)
        places = [self.root, self.root / COMPANIONS, self.folder, *([Path(named)] if isinstance(named, str) else [])]
        return next((place for place in places if (place / "config.json").is_file()), None)


def find_origin(root: Path) -> Origin:
    """Return the checkpoint in a folder, the newest iteration of several. Raises InputError if there is none."""
    if not root.is_dir():
        raise InputError(f"{root}: no such folder")
    folder = _iteration(root)
    if (folder / INDEX_FILE).is_file():
        return Origin(Format.TORCH_DIST, root, folder)
    if shard_files(folder) and not list(folder.glob("*_model_states.pt")):
        return Origin(Format.MP_RANK, root, folder)
    states = find_states(root)
    if states is not None:
        return Origin(Format.ZERO, root, states)
    if (root / "config.json").is_file() and any(root.glob("*.safetensors")):
        return Origin(Format.HUGGINGFACE, root, root)
    raise InputError(
        f"{root}: expected a checkpoint: config.json with *.safetensors, .metadata with *.distcp, mp_rank_* folders, "
        "or *_model_states.pt; found none of them"
    )


def _iteration(root: Path) -> Path:
    tracker = root / TRACKER_FILE
    if not tracker.is_file():
        return root
    text = tracker.read_text(encoding="utf-8").strip()
    folder = root / (f"iter_{int(text):07d}" if text.isdecimal() and len(text) < 10 else "release")
    if not folder.is_dir():
        raise InputError(f"{tracker}: names {text}, but there is no folder {folder}")
    return folder


def architecture_of(origin: Origin, config: Mapping[str, Any], where: Path | str) -> Architecture:
    """Return the architecture by the fields of a config.json, which must agree with Megatron's arguments."""
    architecture = architecture_in(config, where)
    arguments = origin.arguments()
    check_arguments(arguments, str(origin.folder))
    check_agreement(arguments, architecture, str(origin.folder))
    return architecture


def config_of(origin: Origin, companions: Path | None, vocabulary: int | None) -> dict[str, Any]:
    """Return the fields of the model's config.json: the one in `companions`, or one made of Megatron's arguments.

    `vocabulary`: tokens, if the arguments do not tell. Raises InputError if there is neither.
    """
    if companions is not None:
        return read_json_object(companions / "config.json")
    arguments = origin.arguments()
    if arguments is None:
        raise InputError(
            f"{origin.root}: expected a config.json and a tokenizer, found none: "
            "name a Hugging Face folder of the model with --like (model.like)"
        )
    rows = vocabulary or getattr(arguments, "vocab_size", None) or getattr(arguments, "padded_vocab_size", None)
    if rows is None:
        raise InputError(f"{origin.folder}: args.vocab_size: found none, expected a number; set --vocabulary or --like")
    return config_from(arguments, int(rows), str(origin.folder))
