"""The summary and the report of a whole (invented) run."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tasks.evaluation.evaluate import read_evaluation
from tasks.evaluation.report.examples import pick_examples
from tasks.evaluation.report.page import write_report
from tasks.evaluation.summary import HeldoutEvaluations, ReportInputs, summarise, write_summary
from tasks.pipeline.references import SftDataRef
from tasks.pipeline.store import publish, published_digest

_VOID = {"meta", "br", "img", "link", "input", "hr"}


class _Page(HTMLParser):
    """Collects text, outside addresses, and tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.tags: list[str] = []
        self.anchors = set[str]()
        self.ids = set[str]()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            if name == "href" and (value or "").startswith("#"):
                self.anchors.add((value or "")[1:])
            if name in ("src", "href", "action", "data", "poster") and "//" in (value or ""):
                self.outside.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(fake_run: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, _Page]:
    run_dir = tmp_path_factory.mktemp("report")
    path = write_report(run_dir, fake_run, write_summary(run_dir, fake_run))
    parser = _Page()
    content = path.read_text(encoding="utf-8")
    parser.feed(content)
    return content, parser


def test_the_page_stands_alone(page: tuple[str, _Page]) -> None:
    content, parser = page
    assert parser.open == []
    assert parser.outside == []
    assert {"script", "link", "iframe", "img"}.isdisjoint(parser.tags)
    assert "@import" not in content
    assert "url(" not in content
    assert "prefers-color-scheme: dark" in content
    assert parser.anchors <= parser.ids
    assert len(content) < 400_000


def test_the_page_says_what_matters(page: tuple[str, _Page], fake_run: ReportInputs) -> None:
    _, parser = page
    for words in ("iterations of reinforcement learning", "Control: more SFT", "roofline", "verified", "How to go on"):
        assert words in parser.text
    assert parser.tags.count("article") == 3
    assert fake_run.sampled.before.policy_digest in parser.text
    assert "learning_rate" in parser.text


def test_cells_of_tables_have_their_headings_for_narrow_screens(page: tuple[str, _Page]) -> None:
    cells = [
        cell
        for row in re.findall(r"<tr>(<td.*?)</tr>", page[0], re.DOTALL)
        for cell in re.findall(r"<td[^>]*>", row)[1:]
    ]
    assert len(cells) > 20
    unlabelled = [cell for cell in cells if "data-label=" not in cell]
    assert set(unlabelled) <= {'<td class="mark">'}
    assert 'data-label="Correct, before"' in page[0]
    assert 'data-label="Change"' in page[0]


def test_estimates_are_marked_beside_every_timed_figure(page: tuple[str, _Page]) -> None:
    content, _ = page
    for row in content.split("<tr>"):
        if any(name in row for name in ("fast 1<", "Mean return</span>", "Speedup</span>")):
            assert 'class="est"' in row


def test_greedy_answers_and_harder_problems_have_the_same_fields(fake_run: ReportInputs, tmp_path: Path) -> None:
    summary = write_summary(tmp_path, fake_run)
    heldout, greedy = summary["heldout"], summary["heldout_greedy"]
    # pass@4 needs four answers.
    assert {name for name in heldout if "pass_4" not in name} == set(greedy)
    for policy in ("before", "after", "control"):
        assert greedy[policy]["trajectories"] == 48
        assert {name for name in heldout[policy] if "pass_4" not in name} == set(greedy[policy])
        assert len(greedy[policy]["turns"]) == 3
    assert heldout["harder"]["n"] == greedy["harder"]["n"] == 6
    assert set(heldout["harder"]) == set(heldout) - {"harder", "between"}
    assert greedy["before"]["distinct_answers"] == 1
    assert 1 <= heldout["before"]["distinct_answers"] <= 4


def test_the_sentence_at_the_top_is_of_the_answers_that_gained_less(page: tuple[str, _Page]) -> None:
    """The invented greedy policies are equally good; the sampled ones are not."""
    _, parser = page
    assert re.search(r"After 8 iterations .* of the policy's greedy answers .* no clear change", parser.text)
    assert re.search(r"The share of sampled answers that is correct rose from", parser.text)
    for words in (
        "Sampled answers",
        "Greedy answers",
        "Change, harder",
        "unseen pairs of operators",
        "−ln p of its answers",
    ):
        assert words in parser.text


def test_examples_are_of_three_kinds(fake_run: ReportInputs) -> None:
    examples = pick_examples(fake_run.sampled.after, fake_run.problems, "brief")
    assert [example.kind for example in examples] == ["repaired", "faster", "failure"]
    repaired, faster, failure = (example.turns for example in examples)
    assert repaired[0]["status"] != "correct"
    assert repaired[-1]["status"] == "correct"
    assert faster[-1]["speedup"] > faster[0]["speedup"]
    assert failure[-1]["status"] != "correct"
    assert failure[-1]["told"] != failure[-1]["judged"]
    assert examples == pick_examples(fake_run.sampled.after, fake_run.problems, "brief")


def test_summary_has_the_agreed_fields(fake_run: ReportInputs, tmp_path: Path) -> None:
    summary = write_summary(tmp_path, fake_run)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    heldout = summary["heldout"]
    for policy in ("before", "after", "control"):
        assert heldout[policy]["n"] == 48
        for name in ("compiled", "correct", "fast_1", "fast_2", "mean_return", "geomean_speedup"):
            low, high = heldout[policy][f"{name}_ci"]
            assert low <= heldout[policy][name] <= high
    for name in ("delta_correct", "delta_mean_return", "delta_fast_2"):
        assert len(heldout[f"{name}_ci"]) == 2
    assert heldout["after"]["problems_left_out"] == 0
    assert summary["corpus"]["verified"] is True
    assert summary["orchestration_seconds"] == pytest.approx(668.0 - sum(fake_run.stage_seconds.values()))
    assert summary["stage_seconds"] == fake_run.stage_seconds
    assert summary["sizes"]["trajectories"] == 8 * 16 * 8
    assert len(summary["iterations"]) == 8
    assert summary["iterations"][0]["kl"] is not None


def test_a_joint_epoch_and_the_policy_before_it(fake_run: ReportInputs, tmp_path: Path) -> None:
    assert summarise(fake_run)["joint_epoch"] is None
    counts = {"problems": 64, "solved": 41, "pairs": 300, "roles": {"solver": 300}}
    batch = fake_run.iterations[0].trajectories
    with publish(tmp_path / "pairs", counts) as folder:
        (folder / "pairs.parquet").write_bytes(b"")
    pairs = SftDataRef(
        uri=str(tmp_path / "pairs"), digest=published_digest(tmp_path / "pairs"), pairs=300, verified=True
    )
    inputs = fake_run.model_copy(update={"joint_batch": batch, "joint_pairs": pairs})
    summary = summarise(inputs)
    joint = summary["joint_epoch"]
    assert joint == {**counts, **{name: joint[name] for name in ("mean_reward", "mean_return", "fast_1")},
                     "conversations": batch.trajectories, "correct": summary["iterations"][0]["correct"]}  # fmt: skip
    page = write_report(tmp_path, inputs, summary).read_text(encoding="utf-8")
    assert f"{batch.trajectories:,} conversations on 64 training problems" in page
    assert "300 pairs from the 41 problems that it solved" in page
    assert "joint epoch" not in write_report(tmp_path, fake_run, summarise(fake_run)).read_text(encoding="utf-8")


def test_policies_between_are_points_of_the_curves(fake_run: ReportInputs, tmp_path: Path) -> None:
    assert fake_run.sampled.control is not None
    sampled = fake_run.sampled.model_copy(update={"control": None, "between": {4: fake_run.sampled.control}})
    evaluated = fake_run.model_copy(update={"sampled": sampled})
    summary = summarise(evaluated)
    (between,) = summary["heldout"]["between"]
    assert between["policy"] == 4
    assert between["correct"] == read_evaluation(fake_run.sampled.control)["overall"]["correct"]
    page = write_report(tmp_path, evaluated, summary).read_text(encoding="utf-8")
    assert f"held-out, sampled, policy 4: {100 * between['correct']:.0f} %" in page


def test_a_run_without_iterations_or_metrics_has_a_report_too(fake_run: ReportInputs, tmp_path: Path) -> None:
    bare = fake_run.model_copy(
        update={
            "iterations": (),
            "sampled": HeldoutEvaluations(before=fake_run.sampled.before, after=fake_run.sampled.before),
            "greedy": None,
            "wall_seconds": None,
            "configuration": {},
            # A pretrained policy has no metrics of ours.
            "sft": fake_run.sft.model_copy(update={"uri": str(tmp_path)}),
        }
    )
    path = write_report(tmp_path, bare, summarise(bare))
    parser = _Page()
    parser.feed(path.read_text(encoding="utf-8"))
    assert "Before any reinforcement learning" in parser.text
    assert "Control" not in parser.text


@pytest.mark.parametrize(
    ("update", "told"),
    [
        ({"schedule": "constant"}, None),
        ({"schedule": "cosine"}, 8),
        ({"schedule": "cosine", "schedule_iterations": 4}, 4),
    ],
    ids=str,
)
def test_the_command_to_train_longer_keeps_what_is_there(
    fake_run: ReportInputs, tmp_path: Path, update: dict[str, object], told: int | None
) -> None:
    configuration = {"iterations": 8, "runs_dir": "some/runs", "update": update}
    inputs = fake_run.model_copy(update={"configuration": configuration})
    text = write_report(tmp_path, inputs, write_summary(tmp_path, inputs)).read_text(encoding="utf-8")
    assert f"kernelmill train --config some/runs/{inputs.run_id}/config.yaml" in text
    found = re.findall(r"--set update\.schedule_iterations=(\d+)", text)
    assert found == ([] if told is None else [str(told)])


def test_refills_are_told(fake_run: ReportInputs, tmp_path: Path) -> None:
    summary = write_summary(tmp_path, fake_run)
    assert all(entry["refill"] is None for entry in summary["iterations"])
    for number, entry in enumerate(summary["iterations"]):
        entry["refill"] = {"wanted": 40, "further": 3 * (number % 2), "missing": int(number == 5)}
    content = write_report(tmp_path, fake_run, summary).read_text(encoding="utf-8")
    assert (
        "To have 40 groups with variance an iteration, 12 further problems were played in 4 of 8 iterations; 1 had fewer all the same."
        in content
    )


def test_links_work_from_the_runs_folder(fake_run: ReportInputs, tmp_path: Path) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    docs = tmp_path / "runs" / "store" / "docs" / "index.html"
    inputs = fake_run.model_copy(update={"data_docs": {"Problems": str(docs)}, "links": {"W&B": "https://wandb.ai/x"}})
    content = write_report(tmp_path / "runs" / "r", inputs, summarise(inputs)).read_text(encoding="utf-8")
    assert 'href="../store/docs/index.html"' in content
    assert 'href="https://wandb.ai/x"' in content
