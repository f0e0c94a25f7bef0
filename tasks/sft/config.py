"""Settings of supervised fine-tuning."""

import math
from typing import Annotated, Literal

from pydantic import Field

from kernels_eval.frozen import AddedLater, FileContent, FrozenModel, Operational
from tasks.problems.config import PAIR_READER
from tasks.training.config import Beta, LoraConfig


class SftJudgeConfig(FrozenModel):
    """Judge of the pairs."""

    device: Literal["as_judge", "cpu"] = "as_judge"
    """`cpu`: pairs are judged on CPU workers, in Triton's interpreter and with estimated speeds, also where rollouts
    are judged on a GPU: a GPU times one kernel after the other, which for a corpus takes an hour instead of minutes.
    With `judge.backend: auto`, kernels in languages that are not interpreted are judged as rollouts are all the same.
    `as_judge`: as rollouts are (`judge.device`)."""
    workers: Annotated[int | None, Operational] = Field(default=None, ge=1, le=512)
    """Pairs judged at the same time. None: `judge.workers`; with `device: cpu`, all CPUs of the machine but two."""


class SftDataConfig(FrozenModel):
    """The pairs of problem and kernel that the policy first imitates."""

    path: Annotated[str | None, FileContent] = None
    """A file or folder of pairs, in a format of docs/problems.md; none: pairs generated for the training problems,
    in the language that is judged (`judge.backend`: triton, cuda, or auto, which is both)."""
    reader: Annotated[str | None, PAIR_READER] = None
    """A function of your own that reads what lies at `path`: `my_pairs:read` (docs/doors.md); none: by its suffix."""
    corpus: Literal["compositions", "modules", "both"] = "compositions"
    """Generated pairs, without `path`. `compositions`: of the bundled suite's operators. `modules`: problems as
    KernelBench writes them, with Triton kernels; about a third of them are repairs. `both`: these after those."""
    pairs: int = Field(default=10_000, ge=1)
    """Pairs of the `modules` corpus; none has an operator of `problems.unseen`."""
    long_chains: Annotated[float | None, AddedLater] = Field(default=None, ge=0, le=1)
    """Share of those pairs that are long chains. None: `problems.long_chains`. RL gains from more of them than SFT:
    single operators that SFT shows are solved after it."""
    optimizations: Annotated[int, AddedLater] = Field(default=0, ge=0)
    """Further pairs of the `modules` corpus: a correct kernel that takes long, what the judge says of it, and a faster
    one. Those that turn out less than 1.2 times as fast are not trained on. Agents of later turns learn from them."""
    leave_out: Annotated[tuple[str, ...], AddedLater] = ()
    """Operators that the `modules` corpus does not show while training problems of the same source have them: what
    is left for RL to find. As in `problems.unseen`, which neither shows."""
    seed: int | None = Field(default=None, ge=0)
    """Seed of the generated corpus. None: the run's; runs of several seeds with one corpus differ in training alone."""
    columns: dict[str, str] = Field(default={})
    """Places in your table, by our name: `{prompt: question, completion: reply.text}`; a dot leads into an object.
    Needed only for names that are not known (docs/problems.md)."""
    bad_rows: float = Field(default=0.5, ge=0, le=1)
    """Share of the rows at `path` that may be no pairs: each is named in the log, counted and left out. More stop the
    run; 0: any does."""
    reasoning: Annotated[Literal["keep", "drop"], AddedLater] = "drop"
    """`keep`: the thoughts before a kernel at `path` are part of the answer to learn, in the form of the model's chat
    template (Qwen3: `<think> … </think>`). Needs `rollout.episode.thinking`. `drop`: the kernel alone is."""
    verified: bool = True
    """Train on pairs whose kernel was judged correct only; false: on all, as scraped corpora are used."""
    judged: Annotated[Literal["all", "shown"], AddedLater] = "all"
    """`shown`: judge only the earlier kernels of repairs, whose verdicts prompts tell. The answers' verdicts decide
    nothing where `verified` is false, unless an agent may stop or `sft.repairs` or `optimizations` need them."""
    compile: Literal["as_judge", "never"] = "as_judge"
    """`never`: pairs are judged without compiling them to machine code, for corpora too large to compile."""
    judge: SftJudgeConfig = SftJudgeConfig()
    bug_probability: float = Field(default=0.0, ge=0, le=1)
    """Share of operator uses that are written with a plausible bug (unverified corpora are like that)."""
    misconceived: Annotated[float, AddedLater] = Field(default=0.0, ge=0, le=1)
    """Share of the operators, drawn by the corpus's seed, that its authors misunderstand: their uses have the bug with
    `misconception_probability`. A policy that imitates the corpus then prefers the wrong form of them."""
    misconception_probability: Annotated[float, AddedLater] = Field(default=0.65, ge=0, le=1)
    """Share of the uses of a misconceived operator that have the bug."""
    mended: Annotated[float | None, AddedLater] = Field(default=None, ge=0, le=1)
    """Share of an earlier kernel's bugs that a repair mends, where its earlier kernels have the bugs that first ones
    have; the answer has no other bugs. None: earlier kernels have more bugs, and answers those of first kernels."""
    compositions: int = Field(default=800, ge=1)
    """Distinct operator sequences in the generated corpus; none of them is in the held-out set."""
    levels: tuple[Annotated[int, Field(ge=1, le=3)], ...] = ()
    """Levels of these operator sequences; none: `problems.levels`. With `[1, 2]` RL has to find the kernels of blocks,
    which SFT never shows."""
    styles_per_composition: int = Field(default=2, ge=1, le=8)
    """Kernels written for each: fused, a kernel per step, good and poor block sizes, needless passes. In CUDA C++:
    naive, coalesced, float4, shared memory, warp shuffles, grid-stride and a kernel per step, where they suit."""
    styles: tuple[str, ...] = ()
    """Styles to write generated kernels in, those expected to be fast first; none: all. With `judge.backend: auto`
    they are named `triton:fused`, `cuda:float4` and so on. The fewer, the more kernels of each a policy learns from.
    `partly_fused` is written only where it is named."""
    tuning: Literal["fixed", "varied"] = "fixed"
    """Launch parameters of the generated kernels. `varied`: tile sizes, warps and stages (of CUDA C++
    the threads of a block) are drawn for each kernel, and RL finds out which are fast for which shape."""
    repair_fraction: float = Field(default=0.3, ge=0, le=1)
    """Share of two-turn conversations: an earlier kernel, the judge's feedback, a better kernel."""
    stop_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of those, and of `optimizations`, whose earlier kernel is as fast as the corpus knows it: an agent that may
    stop learns to."""

    def seed_in(self, run_seed: int) -> int:
        """Return the corpus's seed in a run of this seed: runs of several seeds with one corpus share its pairs."""
        return run_seed if self.seed is None else self.seed

    @property
    def generated_pairs(self) -> float:
        """Number of generated pairs, about."""
        composed = self.compositions * self.styles_per_composition * (1 + self.repair_fraction)
        return composed * (self.corpus != "modules") + (self.pairs + self.optimizations) * (
            self.corpus != "compositions"
        )

    @property
    def origin(self) -> str:
        """Source of the pairs, in words."""
        if self.path is not None:
            return self.path
        parts = {
            "compositions": f"{self.styles_per_composition} kernels for each of {self.compositions} compositions",
            "modules": f"{self.pairs + self.optimizations} pairs in KernelBench's style",
        }
        return ", ".join(parts.values() if self.corpus == "both" else [parts[self.corpus]])


_FURTHER_WARMUP = 8
"""Steps: further SFT has some dozens, and a fresh optimizer's first steps are its largest."""


class JointConfig(FrozenModel):
    """Joint epoch: after SFT the policy, or its agents together, solve training problems, and SFT goes on with the best
    kernel found on each: as the answer to the problem, and to every worse kernel on the way."""

    problems: int = Field(default=0, ge=0)
    """Training problems to solve. 0: no joint epoch."""
    samples_per_problem: int = Field(default=8, ge=1)
    """Conversations on each."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the pairs that come of it."""
    learning_rate_fraction: float = Field(default=0.1, gt=0)
    """Highest learning rate, as a share of `sft.learning_rate`."""


class RepairsConfig(FrozenModel):
    """Repairs of the policy's own failures: after SFT the policy answers training problems once, and SFT goes on with
    its wrong and slow answers, what the judge says of them, and the best kernel known (tasks.sft.repair_pairs)."""

    problems: int = Field(default=0, ge=0)
    """Training problems to answer. 0: no such repairs."""
    samples_per_problem: int = Field(default=4, ge=1)
    """First answers to each."""
    replayed: float = Field(default=1.0, ge=0)
    """Pairs of SFT's own for each repair, mixed in: without them first answers get worse."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the pairs."""
    learning_rate_fraction: float = Field(default=0.25, gt=0)
    """Highest learning rate, as a share of `sft.learning_rate`."""


class SftConfig(FrozenModel):
    """Supervised fine-tuning of the first policy."""

    data: SftDataConfig = SftDataConfig()
    repairs: RepairsConfig = RepairsConfig()
    joint: JointConfig = JointConfig()
    shared: bool = False
    """Agents with weights of their own begin with the same ones, trained on the turns of all of them, and part in RL.
    False: SFT trains each on its own turns."""
    steps: int = Field(default=600, ge=0)
    """Optimizer steps, unless `epochs` is set. 0 (or `sft: none`): no SFT data and no SFT; RL starts from
    `model.pretrained`, a model that is fine-tuned already."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the training conversations; none: `steps` decides."""
    batch_size: int = Field(default=32, ge=1)
    """Conversations an optimizer step, over all ranks."""
    learning_rate: float = Field(default=5e-3, gt=0)
    warmup_steps: int = Field(default=50, ge=0)
    final_learning_rate_fraction: float = Field(default=0.05, ge=0, le=1)
    """The cosine ends at this share of the peak."""
    decay_steps: int | None = Field(default=None, ge=1)
    """Steps over which the rate falls; further ones keep the last rate. None: all."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(default=0.01, ge=0)
    gradient_clip: float = Field(default=1.0, gt=0)
    compile: Annotated[bool, AddedLater] = False
    """Compile each decoder layer with torch.compile, as `update.compile` does for SFT and RL. An iteration of RL is
    often too short to win back the time that it takes."""
    lora: LoraConfig | None = None
    """Train adapters on a pretrained model and publish the merged policy: the optimizer's state of an 8B model shrinks
    from 90 GB to less than one. None: train all weights."""
    max_tokens: int = Field(default=2048, ge=16)
    """Longer conversations are dropped and counted."""
    validation_fraction: float = Field(default=0.02, ge=0, lt=1)
    save_interval: int = Field(default=200, ge=1)
    """Steps between checkpoints that a killed run resumes from, and between validations."""
    best_metric: Annotated[Literal["loss", "validation_loss"], Operational] = "validation_loss"
    """Metric whose lowest value marks the best checkpoint; it is kept beside the newest (`update.keep_checkpoints`)."""
    early_stop: int | None = Field(default=None, ge=1)
    """Stop after so many validations in a row that are no better than the best before them. With it the best policy
    is published, not the last one, also where training never stops early. None: train to the end, publish the last
    policy."""

    @property
    def is_left_out(self) -> bool:
        """True if RL starts from the pretrained model itself."""
        return self.steps == 0 and self.epochs is None

    def of_joint_epoch(self) -> "SftConfig":
        """Return the settings of the joint epoch's training: as SFT's but for its length and rate."""
        return self._further(self.joint.epochs, self.joint.learning_rate_fraction)

    def of_repairs(self) -> "SftConfig":
        """Return the settings of the training on repairs: as SFT's but for its length and rate."""
        return self._further(self.repairs.epochs, self.repairs.learning_rate_fraction)

    def prolonged(self, done: int, further: int) -> "SftConfig":
        """Return the settings of an SFT that goes on after its `done` steps: the same steps first, then `further` ones
        with the optimizer as it is and the rate where it ended.
        """
        changes = {"steps": done + further, "epochs": None, "early_stop": None, "decay_steps": done}
        return self.of_first_policy().model_copy(update=changes)

    def at_last_rate(self, steps: int) -> "SftConfig":
        """Return the settings of `steps` steps at the rate where SFT ended, from a policy and with a new optimizer."""
        epochs = 1.0  # decided by the steps
        further = self._further(epochs, self.final_learning_rate_fraction)
        return further.model_copy(update={"epochs": None, "steps": steps, "final_learning_rate_fraction": 1.0})

    def of_first_policy(self) -> "SftConfig":
        """Return the settings of the first SFT, without those of the stages after it."""
        return self.model_copy(update={"repairs": RepairsConfig(), "joint": JointConfig()})

    def _further(self, epochs: float, learning_rate_fraction: float) -> "SftConfig":
        changes = {
            "learning_rate": self.learning_rate * learning_rate_fraction,
            "warmup_steps": min(self.warmup_steps, _FURTHER_WARMUP),
            "epochs": epochs,
            "early_stop": None,
        }
        return self.of_first_policy().model_copy(update=changes)

    @property
    def length(self) -> str:
        """Length of the training in words: `600 steps`, `1.5 epochs`."""
        if self.epochs is None:
            return f"{self.steps} steps"
        return f"{self.epochs:g} epoch{'' if self.epochs == 1 else 's'}"

    def steps_for(self, conversations: int) -> int:
        """Return the optimizer steps for so many training conversations."""
        return self.steps if self.epochs is None else max(math.ceil(self.epochs * conversations / self.batch_size), 1)
