"""The SFT data set: what becomes of a pair, by its verdict, and what the policy is asked in its conversation."""

import json
import random
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.checks.settings import check_settings
from flows.settings.configuration import check_configuration
from kernels_eval import JudgeConfig, Problem, Status, Verdict
from kernels_eval.errors import InfrastructureError, InputError
from tasks.pipeline.references import ProblemSetRef, SftDataRef, silent
from tasks.pipeline.stage import Stage, Workspace
from tasks.pipeline.store import read_manifest
from tasks.pipeline.tables import PAIRS_FILE
from tasks.pipeline.verdicts import verdict_folder
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.languages import Wanted, language_of
from tasks.rollout.config import EpisodeConfig, JudgingPlace
from tasks.sft import pairs
from tasks.sft.config import SftDataConfig
from tasks.sft.corpus_check import check_corpus
from tasks.sft.drafts import generate_drafts
from tasks.sft.task import make_sft_data
from tasks.validation.projections import NOT_JUDGED, pairs_projection

SOURCE = (
    "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def forward(self, x):\n        return x * {}.0\n"
    "def get_inputs():\n    return [torch.randn(64, 32)]\ndef get_init_inputs():\n    return []\n"
)
HELD_OUT = 99
RIGHT = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=2.0)
TRITON = "import triton\n"
WRONG = Verdict(status=Status.INCORRECT, compiled=True)
FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR, error_message="the machine failed")

Build = Callable[..., SftDataRef]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    folder = tmp_path_factory.mktemp("problems")
    rows = [
        {"problem_id": "p", "source": SOURCE.format(1), "split": "train"},
        {"problem_id": "held_out", "source": SOURCE.format(HELD_OUT), "split": "heldout"},
    ]
    file = folder / "problems.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    config = ProblemsConfig(source="jsonl", path=str(file), train=1, heldout=1, flag_trivial=False)
    return build_problem_set(config, folder / "set")


@pytest.fixture
def build(problems: ProblemSetRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """A function that publishes pairs of one kernel each, numbered as their problems are, with these verdicts."""

    def built(verdicts: dict[int, Verdict], backend: str = "triton", **settings: Any) -> SftDataRef:
        class Judge:
            def __init__(self, config: JudgeConfig) -> None:
                assert config.backend == backend

            def __enter__(self) -> "Judge":
                return self

            def __exit__(self, *_: object) -> None: ...

            def evaluate_many(self, items: Sequence[tuple[Problem, str]], progress: Any) -> list[Verdict]:
                return [verdicts[int(kernel.rpartition(" ")[2])] for _, kernel in items]

        rows = [
            {
                "pair_id": f"pair{n}",
                "problem_source": SOURCE.format(n),
                "kernel_source": f"class ModelNew: ...\n# {n}",
            }
            for n in verdicts
        ]
        file = tmp_path / "pairs.jsonl"
        file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        monkeypatch.setattr(pairs, "Judge", Judge)
        return pairs.build_sft_data(
            problems,
            SftDataConfig(path=str(file), **settings),
            ProblemsConfig(),
            EpisodeConfig(),
            JudgeConfig(backend=backend),
            0,
            tmp_path / "data",
            silent,
        )

    return built


def table_of(data: SftDataRef) -> pl.DataFrame:
    return pl.read_parquet(data.path / PAIRS_FILE)


def test_the_right_ones_are_used_and_what_is_left_out_is_counted(build: Build) -> None:
    verdicts = {number: WRONG if number % 2 else RIGHT for number in range(10, 210)}
    data = build(verdicts | {HELD_OUT + 200: FAULT, HELD_OUT: RIGHT})
    table = table_of(data)
    assert len(table) == len(verdicts) - (HELD_OUT in verdicts)
    assert table["used"].to_list() == table["verdict"].struct.field("correct").to_list()
    assert data.pairs == int(table["used"].sum())
    metadata = (read_manifest(data.path) or {})["metadata"]
    assert (metadata["dropped_contaminated"], metadata["dropped_faults"]) == (1, 1)


def test_of_an_unverified_corpus_all_are_used(build: Build) -> None:
    data = build({1: RIGHT, 2: WRONG}, verified=False)
    assert table_of(data)["used"].to_list() == [True, True]


def test_only_kernels_that_prompts_tell_of_are_judged_and_the_conversations_stay(
    problems: ProblemSetRef, tmp_path: Path
) -> None:
    judged: list[int] = []

    def judge_all(items: Sequence[tuple[Problem, str]], *_: Any) -> list[Verdict]:
        judged.append(len(items))
        return [WRONG] * len(items)

    def table(which: str) -> pl.DataFrame:
        settings = {"verified": False, "compositions": 8, "judged": which, "repair_fraction": 0.5}
        config, episode = SftDataConfig.model_validate(settings), EpisodeConfig()
        data = pairs.build_sft_data(
            problems, config, ProblemsConfig(), episode, JudgeConfig(), 0, tmp_path / which, silent, judge_all
        )
        return table_of(data)

    every, shown = table("all"), table("shown")
    assert every.drop("verdict", "reward").equals(shown.drop("verdict", "reward"))
    assert shown["verdict"].null_count() == shown["reward"].null_count() == shown.height
    repairs = shown.filter(pl.col("kind") == "repair").height
    assert repairs <= judged[1] <= judged[0] - (shown.height - repairs)
    assert set(pairs_projection(shown, verified=False, all_judged=False)["status"]) == {NOT_JUDGED}
    assert set(pairs_projection(shown, verified=False)["status"]) == {None}, "without that setting it is an error"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"sft": {"data": {"verified": True}}}, "sft.data.verified: true"),
        ({"sft": {"data": {"optimizations": 1}}}, "sft.data.optimizations"),
        ({"sft": {"repairs": {"problems": 1}}}, "sft.repairs.problems"),
    ],
)
def test_what_needs_every_verdict_is_named(settings: dict[str, Any], named: str) -> None:
    data = {"judged": "shown", "verified": False, **settings["sft"].get("data", {})}
    config = check_configuration({"sft": {**settings["sft"], "data": data}}, "run.yaml")
    with pytest.raises(InputError, match=f"sft.data.judged: found shown, expected all with {named}"):
        check_settings(config)


@pytest.mark.parametrize(("backend", "asked"), [("triton", "fast Triton kernels"), ("cuda", "fast CUDA C++ kernels")])
def test_the_policy_is_asked_for_the_language_that_is_judged(build: Build, backend: str, asked: str) -> None:
    (conversation,) = table_of(build({1: RIGHT}, backend))["messages"].to_list()
    assert [message["trained"] for message in conversation] == [False, True]
    assert asked in conversation[0]["content"]


@pytest.mark.parametrize(("backend", "word"), [("triton", "@triton.jit"), ("cuda", "__global__ void")])
def test_the_generated_corpus_is_of_the_language_that_is_judged(
    problems: ProblemSetRef, tmp_path: Path, backend: str, word: str
) -> None:
    judged: list[tuple[Problem, str]] = []

    def judge_all(items: Sequence[tuple[Problem, str]], config: JudgeConfig, _progress: Any) -> list[Verdict]:
        assert config.backend == backend
        judged.extend(items)
        return [RIGHT for _ in items]

    data = pairs.build_sft_data(
        problems,
        SftDataConfig(compositions=12, tuning="varied"),
        ProblemsConfig(),
        EpisodeConfig(prompt="source"),
        JudgeConfig(backend=backend),
        0,
        tmp_path / "data",
        silent,
        judge_all,
    )
    table = table_of(data)
    assert {"direct", "repair"} == set(table["kind"])
    assert all(word in kernel for _, kernel in judged)
    assert all(word in messages[-1]["content"] for messages in table["messages"].to_list())
    assert data.pairs == len(table)


def test_a_corpus_of_both_languages_mends_kernels_of_either() -> None:
    config = SftDataConfig(compositions=40, repair_fraction=0.5)
    drafts = generate_drafts(config, ProblemsConfig(), 0, "auto")
    in_cuda = [draft for draft in drafts if "load_inline" in draft.kernel]
    in_triton = [draft for draft in drafts if "@triton.jit" in draft.kernel]
    assert len(in_cuda) + len(in_triton) == len(drafts)
    assert all(draft.style.startswith("cuda:") for draft in in_cuda)
    direct = [draft for draft in drafts if not draft.earlier]
    assert 0.3 < sum("load_inline" in draft.kernel for draft in direct) / len(direct) < 0.8
    earlier = "".join(kernel for draft in drafts for kernel in draft.earlier)
    assert "load_inline" in earlier
    assert "@triton.jit" in earlier


@pytest.mark.parametrize("repair_fraction", [0.0, 0.5])
def test_a_corpus_is_written_in_the_given_styles_alone(repair_fraction: float) -> None:
    chosen = ("triton:fused", "cuda:float4", "cuda:naive")
    config = SftDataConfig(compositions=60, styles=chosen, repair_fraction=repair_fraction, stop_fraction=0.2)
    drafts = generate_drafts(config, ProblemsConfig(), 0, "auto")
    assert {draft.style for draft in drafts} == set(chosen)
    written = {
        language_of("auto").write(Wanted(composition, style, wrong, 0, "fixed", random.Random(0)))
        for composition in map(parse_composition, {draft.composition for draft in drafts})
        for style in chosen
        for count in range(len(composition.names) + 1)
        for wrong in combinations(sorted(set(composition.names)), count)
    }
    assert all(kernel in written for draft in drafts for kernel in (draft.kernel, *draft.earlier))


def test_repairs_in_given_styles_end_in_the_first_and_begin_with_mistakes_where_none_is_slow() -> None:
    config = SftDataConfig(compositions=40, styles=("grid_stride", "float4"), repair_fraction=0.5)
    repairs = [draft for draft in generate_drafts(config, ProblemsConfig(), 0, "cuda") if draft.earlier]
    assert {draft.style for draft in repairs} == {"grid_stride", "float4"}
    assert all(kernel != draft.kernel for draft in repairs for kernel in draft.earlier)


def test_a_corpus_of_partly_fused_kernels_shows_no_fused_chain_and_no_other_corpus_has_them() -> None:
    config = SftDataConfig(compositions=60, styles=("partly_fused", "extra_passes"), repair_fraction=0.4)
    drafts = generate_drafts(config, ProblemsConfig(), 0, "triton")
    chains = [draft for draft in drafts if ">" in draft.composition]
    # Where the output has not the shape of the tile there is no room for it: such chains are fused in every style.
    assert all("x = tl.load(out_ptr" in draft.kernel for draft in chains if "torch.empty(M, N, " in draft.kernel)
    assert {len(draft.kernel.split("x = tl.load(out_ptr")) for draft in chains} > {2, 3, 4}
    usual = generate_drafts(SftDataConfig(compositions=60), ProblemsConfig(), 0, "triton")
    assert "partly_fused" not in {draft.style for draft in usual}


def test_styles_that_there_are_not_are_refused_before_the_run() -> None:
    config = SftDataConfig(styles=("triton:fused", "triton:fast"))
    with pytest.raises(
        InputError, match=r"^sft.data.styles: found 'triton:fast', expected some of triton:fused, .*cuda"
    ):
        check_corpus(config, JudgeConfig(backend="auto", device="cuda"))
    with pytest.raises(
        InputError, match=r"^sft.data.styles: found 'triton:fused', expected some of fused, small_blocks"
    ):
        check_corpus(config, JudgeConfig(backend="triton"))
    check_corpus(config.model_copy(update={"path": "pairs.jsonl"}), JudgeConfig(backend="triton"))


def test_styles_that_suit_no_composition_are_bad_input() -> None:
    config = SftDataConfig(compositions=1, styles=("warp",))  # for whole rows; the first composition has none
    with pytest.raises(InputError, match=r"^sft.data.styles: found warp, expected one that suits a composition"):
        generate_drafts(config, ProblemsConfig(), 0, "cuda")


@pytest.mark.parametrize(("path", "share"), [(None, 0.0), ("pairs.jsonl", 1.0)])
def test_only_a_corpus_of_others_is_run_at_its_full_size(path: str | None, share: float) -> None:
    judge = JudgeConfig(full_size_share=0.2)
    assert pairs.judge_of_pairs(SftDataConfig(path=path), judge, TRITON).full_size_share == share


def test_a_language_without_a_generated_corpus_needs_a_file_of_pairs() -> None:
    check_corpus(SftDataConfig(), JudgeConfig(backend="cuda"))
    check_corpus(SftDataConfig(path="pairs.jsonl"), JudgeConfig(backend="tilelang"))
    with pytest.raises(InputError, match=r"sft.data.path: the generated corpus is of Triton or CUDA .* = tilelang"):
        check_corpus(SftDataConfig(), JudgeConfig(backend="tilelang"))


@pytest.mark.parametrize(
    ("pairs_device", "device", "named"), [("cpu", "cuda", "sft.data.judge.device"), ("as_judge", "cpu", "judge.device")]
)
def test_cuda_pairs_that_no_gpu_runs_are_refused_before_the_run(pairs_device: str, device: str, named: str) -> None:
    config = SftDataConfig.model_validate({"judge": {"device": pairs_device}})
    judge = JudgeConfig.model_validate({"backend": "cuda", "device": device})
    with pytest.raises(InputError, match=f"^{named}: cpu, where kernels of judge.backend = cuda are built but not run"):
        check_corpus(config, judge)
    check_corpus(config.model_copy(update={"verified": False}), judge)
    check_corpus(config, judge.model_copy(update={"backend": "triton"}))
    several = judge.model_copy(update={"backend": "auto"})
    if named == "sft.data.judge.device":
        check_corpus(config, several)  # a GPU judges those in CUDA C++
    else:
        with pytest.raises(InputError, match=f"^{named}: cpu, where kernels of judge.backend = auto are built"):
            check_corpus(config, several)


def test_nothing_to_learn_from_is_bad_input_and_a_failing_judge_is_the_machine_s(build: Build, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no pair to train on among 2, expected correct kernels"):
        build({1: WRONG, 2: WRONG})
    with pytest.raises(InfrastructureError, match="the judge failed on 1 of 2 SFT kernels: the machine failed"):
        build({1: RIGHT, 2: FAULT})
    assert not (tmp_path / "data").exists()


def test_pairs_are_judged_on_cpu_workers_where_the_setting_says_so_although_rollouts_are_judged_on_a_gpu():
    on_gpu = JudgeConfig(device="cuda", workers=3, full_size_share=0.0)
    assert pairs.judge_of_pairs(SftDataConfig(), on_gpu, TRITON) == on_gpu
    config = SftDataConfig.model_validate({"compile": "never", "judge": {"device": "cpu", "workers": 14}})
    judged_by = pairs.judge_of_pairs(config, on_gpu, TRITON)
    assert (judged_by.device, judged_by.workers, judged_by.compile) == ("cpu", 14, "never")
    assert judged_by.model_copy(update={"device": "cuda", "workers": 3, "compile": on_gpu.compile}) == on_gpu


def test_of_two_languages_the_one_that_no_cpu_runs_is_judged_as_rollouts_are(
    problems: ProblemSetRef, tmp_path: Path
) -> None:
    judged: list[tuple[str, int | None, str]] = []
    shown: list[tuple[int, int]] = []

    def judge_all(items: Sequence[tuple[Problem, str]], config: JudgeConfig, progress: Any) -> list[Verdict]:
        judged.extend((config.device, config.workers, kernel) for _, kernel in items)
        progress(len(items), len(items))
        return [RIGHT for _ in items]

    data = pairs.build_sft_data(
        problems,
        SftDataConfig.model_validate({"compositions": 12, "judge": {"device": "cpu", "workers": 14}}),
        ProblemsConfig(),
        EpisodeConfig(prompt="source"),
        JudgeConfig(backend="auto", device="cuda", workers=3),
        0,
        tmp_path / "data",
        lambda done, total: shown.append((done, total)),
        judge_all,
    )
    places = {("load_inline" in kernel, device, workers) for device, workers, kernel in judged}
    assert places == {(True, "cuda", 3), (False, "cpu", 14)}
    assert shown[0][0] < shown[1][0] == shown[1][1] == shown[0][1] == len(judged)
    assert data.pairs == len(table_of(data))


@pytest.mark.parametrize(("device", "kept"), [("cpu", True), ("as_judge", False)])
def test_verdicts_on_pairs_are_kept_where_a_cpu_judges_them(
    problems: ProblemSetRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, kept: bool
) -> None:
    folders: list[str | None] = []

    def judge_kernels(items: Sequence[Any], settings: JudgeConfig, *rest: Any) -> list[Verdict]:
        folders.append(settings.cache_dir)
        return [RIGHT] * len(items)

    monkeypatch.setattr("tasks.rollout.judging.judge_kernels", judge_kernels)
    stage = Stage(Workspace(tmp_path, "run", []), "sft_data", "key")
    data = SftDataConfig.model_validate({"corpus": "modules", "pairs": 3, "judge": {"device": device}})
    on_gpu = JudgeConfig(device="cuda")
    make_sft_data.function(
        stage, problems, data, ProblemsConfig(source="modules"), EpisodeConfig(), on_gpu, JudgingPlace(), seed=0
    )
    assert folders == [str(verdict_folder(tmp_path.resolve())) if kept else None]
