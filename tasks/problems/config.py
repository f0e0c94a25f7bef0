"""Settings of the problem set."""

from typing import Annotated, Literal

from pydantic import Field

from kernels_eval.doors import Door
from kernels_eval.errors import InputError
from kernels_eval.frozen import AddedLater, FileContent, FrozenModel

GENERATED = "generated"
MODULES = "modules"
_FORMATS = {
    "kernelbench": "tasks.problems.module_folders:load_modules",
    "robust_kbench": "tasks.problems.robust_kbench:load_tasks",
    "jsonl": "tasks.problems.table_files:read_json",
    "parquet": "tasks.problems.table_files:read_parquet",
    "huggingface": "tasks.problems.table_files:read_dataset_folder",
}
"""Formats of problems in files, and what reads them: docs/problems.md."""
_READS = "a function (path) -> rows, each a mapping with `source`"
LOADER = Door("loader", _FORMATS, _READS, other_values=(GENERATED, MODULES))
"""Sources of problems: those drawn from a seed, and readers of files."""
FILE_LOADER = Door("loader", _FORMATS, _READS)
"""The same door for a setting that takes problems of files alone."""
PAIR_READER = Door("pairs", {}, "a function (path) -> rows, each a mapping with `problem_source` and `kernel_source`")
"""Readers of pairs; ours are chosen by suffix and columns."""
Variants = Literal["single", "multi"]
_ALL = 10**9
"""More problems than any source has."""


class ProblemsConfig(FrozenModel):
    """Source of the problems, and their split."""

    source: Annotated[str, LOADER] = GENERATED
    """`generated`: the bundled suite. `modules`: problems as KernelBench writes them, drawn at random. Otherwise the
    format of what lies at `path`; `jsonl` is also a JSON array. Or a function of your own that reads it:
    `my_problems:read` (docs/doors.md)."""
    path: Annotated[str | None, FileContent] = None
    """File or folder to load; needed unless the problems are generated. Formats: docs/problems.md."""
    columns: dict[str, str] = Field(default={})
    """Places in your table, by our name: `{source: my_code, level: meta.level}`; a dot leads into an object. Needed
    only for names that are not known (docs/problems.md)."""
    bad_rows: float = Field(default=0.5, ge=0, le=1)
    """Share of rows or files that may be no problems: each is named in the log, counted and left out. More stop the
    run; 0: any does."""
    heldout_source: Annotated[str | None, FILE_LOADER] = None
    """Format of what lies at `heldout_path`, or a function of your own that reads it: problems to measure alone. All of
    them are held out (`heldout` does not limit them), and all of `source` are trained on but those that are held out.
    None: `source` gives both."""
    heldout_path: Annotated[str | None, FileContent] = None
    """File or folder of the held-out problems, with `heldout_source`."""
    unseen: tuple[str, ...] = ()
    """Operators of the `modules` problems and pairs that training does not have, such as `softsign`, `argmin`. Of
    held-out problems that are drawn too, some have them."""
    long_chains: Annotated[float, AddedLater] = Field(default=0.0, ge=0, le=1)
    """Share of the `modules` problems and of `sft.data.pairs` that are long chains of level 2: a layer with up to three
    normalisations, poolings or reductions. Their kernels take up to 2,300 tokens: `rollout.sampling.max_new_tokens` of
    2,560 and `sft.max_tokens` of 5,600 suit them."""
    unanswered: Annotated[float, AddedLater] = Field(default=0.0, ge=0, le=1)
    """Share of the `modules` problems to train on for which no kernel is known: other functions, and chains of them.
    RL has to find out how they are written; `sft.repairs` leaves them out."""
    variants: Variants = "single"
    """Arguments of robust-kbench's tasks: of its `single_…_configs`, or each combination of its `multi_…` ones."""
    seed: int = Field(default=0, ge=0)
    """Seed of the generated suite and of the split."""
    train: int = Field(default=800, ge=0)
    """Training problems (at most: an external source may hold fewer). 0: all problems of an external source are held
    out, for evaluation alone."""
    heldout: int = Field(default=96, ge=1)
    """Held-out problems (at most); no composition of them is in the training problems, nor, of the generated suite, a
    part of one. Of an external source the share heldout / (train + heldout) of its compositions is held out."""
    harder: int = Field(default=0, ge=0)
    """Further held-out problems of the generated suite, measured apart: a third each with longer compositions, with
    pairs of operators that training does not have, and with other shapes."""
    sizes: Literal["small", "gpu"] = "small"
    """Sizes of generated problems (tasks.problems.synthetic.sizes). `small`: quick to judge on a CPU, kernels of 5 to
    15 us on a GPU. `gpu`: kernels of 10 us to 1 ms on a GPU, where timing is worth something."""
    levels: tuple[int, ...] = Field(default=(1, 2, 3), min_length=1)
    """Levels to keep, one or more."""
    flag_trivial: bool = True
    """Of an external source: log the problems that zeros, a constant, an old result or the input itself would pass,
    and leave out those whose reference is random. Their code is run for it."""

    @property
    def path_setting(self) -> str:
        """Name of the setting that `path` comes from: that of held-out problems in `of_heldout_files`."""
        return "problems.heldout_path" if (self.train, self.heldout) == (0, _ALL) else "problems.path"

    @property
    def is_generated(self) -> bool:
        """True if the problems of `source` come from a seed, not from files."""
        return self.source in (GENERATED, MODULES)

    def of_heldout_files(self) -> "ProblemsConfig | None":
        """Return the settings that load the held-out problems alone; None without `heldout_source`.

        Raises InputError if only one of the two settings is given.
        """
        if (self.heldout_source is None) != (self.heldout_path is None):
            given, other = "heldout_source", "heldout_path"
            if self.heldout_source is None:
                given, other = other, given
            raise InputError(f"problems.{other}: expected one beside problems.{given}, found none")
        if self.heldout_source is None:
            return None
        changes = {"source": self.heldout_source, "path": self.heldout_path, "train": 0, "heldout": _ALL}
        return self.model_copy(update={**changes, "heldout_source": None, "heldout_path": None})
