"""The viewer's data: runs that are found, filters, the grid, one answer, two policies."""

from pathlib import Path

import pytest

from extras.viewer.answer import difference_of, read_answer
from extras.viewer.comparison import best_answers, shared_problems, side_of, sides_by_default
from extras.viewer.episodes import episodes_of
from extras.viewer.grid import grid_of
from extras.viewer.runs import find_runs, unreadable_runs
from extras.viewer.selection import Wanted, select, wanted_of
from kernels_eval.errors import InputError


def test_runs_of_a_folder_without_links_to_them_and_without_removed_batches(runs_dir: Path) -> None:
    runs = find_runs(runs_dir)
    assert set(runs) == {"first-11111111", "second-22222222"}
    assert list(runs["second-22222222"].batches) == ["policy-000", "policy-001"]
    assert list(runs["first-11111111"].batches) == [
        "policy-000", "policy-001", "policy-000-greedy", "policy-001-greedy", "iteration-0", "iteration-1",
    ]  # fmt: skip
    assert runs["second-22222222"].newest == runs["second-22222222"].batches["policy-001"]


def test_a_link_to_a_run_and_a_single_data_set_are_taken_too(runs_dir: Path) -> None:
    assert list(find_runs(runs_dir / "latest")) == ["second-22222222"]
    alone = find_runs(runs_dir / "first-11111111" / "evaluations" / "policy-000")
    assert [batch.kind for run in alone.values() for batch in run.batches.values()] == ["other"]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match="expected a folder of runs, a run, or a data set"):
            find_runs(path)


def test_a_run_that_lost_its_configuration_is_named(runs_dir: Path, tmp_path: Path) -> None:
    assert unreadable_runs(runs_dir) == []
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "log.txt").touch()
    (tmp_path / "store").mkdir()
    assert unreadable_runs(tmp_path) == [tmp_path / "torn"]


def test_the_flow_run_comes_from_the_log(runs_dir: Path, flow_run: str, tmp_path: Path) -> None:
    assert find_runs(runs_dir)["first-11111111"].flow_run == flow_run
    (tmp_path / "config.yaml").touch()
    assert find_runs(tmp_path)[tmp_path.name].flow_run is None


def test_answers_are_sorted_by_reward_and_faults_come_last(runs_dir: Path) -> None:
    run = find_runs(runs_dir)["first-11111111"]
    found = select(run, Wanted(batch="policy-001"))
    assert [row["reward"] for row in found.rows] == [pytest.approx(1.3), pytest.approx(0.3), pytest.approx(0.1), None]
    lowest = select(run, Wanted(batch="policy-001", order="-reward"))
    assert [row["reward"] for row in lowest.rows] == [pytest.approx(0.1), pytest.approx(0.3), pytest.approx(1.3), None]


@pytest.mark.parametrize(
    ("query", "problems"),
    [
        ({"status": "incorrect"}, ["softmax"]),
        ({"category": "wrong_values"}, ["softmax"]),
        ({"problem": "relu"}, ["relu", "relu"]),
        ({"agent": "optimizer"}, ["relu"]),
        ({"min_speedup": "1.9"}, ["relu"]),
        ({"text": "SOFT"}, ["softmax"]),
        ({"text": "# slow"}, ["relu"]),
        ({"text": "# fast", "agent": "solver"}, ["relu"]),
        ({"text": "nowhere to be found"}, []),
        ({"status": "", "category": "", "unknown": "x"}, ["relu", "relu", "softmax"]),
    ],
)
def test_filters(runs_dir: Path, query: dict[str, str], problems: list[str]) -> None:
    run = find_runs(runs_dir)["first-11111111"]
    found = select(run, wanted_of({**query, "batch": "policy-001"}))
    assert [row["problem_id"] for row in found.rows if row["reward"] is not None] == problems


def test_what_filters_offer_does_not_depend_on_the_other_filters(runs_dir: Path) -> None:
    run = find_runs(runs_dir)["first-11111111"]
    found = select(run, Wanted(batch="policy-001", status="correct"))
    assert dict(found.choices["status"]) == {"correct": 2, "incorrect": 1, "infrastructure_error": 1}
    assert dict(found.choices["agent"])["generator"] == 1
    assert select(run, Wanted()).total == 4 * len(run.batches)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"min_speedup": "fast"}, "min_speedup"),
        ({"min_speedup": "nan"}, "min_speedup"),
        ({"page": "0"}, "page"),
        ({"order": "beauty"}, "order"),
        ({"text": "x" * 201}, "text"),
        ({"batch": "../../etc"}, "batch"),
    ],
)
def test_wrong_filters_are_named(runs_dir: Path, query: dict[str, str], field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: found"):
        select(find_runs(runs_dir)["first-11111111"], wanted_of(query))


def test_a_page_behind_the_last_one_is_the_last_one(runs_dir: Path) -> None:
    found = select(find_runs(runs_dir)["first-11111111"], Wanted(page=99))
    assert (found.page, found.pages) == (1, 1)


def test_the_grid_has_share_and_best_speedup_without_faults(runs_dir: Path) -> None:
    grid = grid_of(find_runs(runs_dir)["first-11111111"], "sampled", by_speed=False)
    assert [batch.key for batch in grid.batches] == ["policy-000", "policy-001"]
    rows = dict(grid.rows)
    assert set(rows) == {"relu", "softmax"}
    assert [problem for problem, _ in grid.rows] == ["softmax", "relu"]
    cells = [cell for cell in rows["relu"] if cell is not None]
    assert [(cell.answers, cell.passed, cell.speedup, cell.timing_source, cell.heat) for cell in cells] == [
        (2, 1.0, 1.5, "roofline", 10),
        (2, 1.0, 2.0, "roofline", 10),
    ]
    assert [cell.heat for cell in rows["softmax"] if cell is not None] == [0, 0]


def test_colours_for_speed_span_half_to_four_times(runs_dir: Path) -> None:
    rows = dict(grid_of(find_runs(runs_dir)["first-11111111"], "sampled", by_speed=True).rows)
    assert [cell.heat for cell in rows["relu"] if cell is not None] == [5, 7]
    assert [cell.heat for cell in rows["softmax"] if cell is not None] == [None, None]


def test_an_answer_has_prompts_kernels_differences_verdicts_and_its_place(runs_dir: Path) -> None:
    run = find_runs(runs_dir)["first-11111111"]
    answer = read_answer(run, run.batches["policy-001"], "relu-000")
    first, second = answer.turns
    assert [(entry.speaker, entry.text) for entry in first.prompt] == [("user", "write")]
    assert [(entry.speaker, entry.text) for entry in second.prompt] == [("user", "faster")]
    assert (first.agent, second.agent) == ("generator", "optimizer")
    assert ("cut", "-x = 1") in second.difference
    assert ("add", "+x = 2") in second.difference
    assert not first.difference
    assert second.verdict.profile is not None
    assert second.verdict.profile.gigabytes_per_s == 900.0
    assert second.verdict.issues[0].remedy == "grow"
    assert second.returned == pytest.approx(1.3)
    assert first.returned == pytest.approx(0.1 + 0.4 * 1.3)
    assert (answer.previous, answer.following) == (None, "relu-001")
    rows = episodes_of([run.batches["policy-001"]]).filter(trajectory_id="relu-000")["rows"][0].to_list()
    assert [turn.row for turn in answer.turns] == rows


def test_text_of_kernels_loses_what_turns_its_direction(runs_dir: Path) -> None:
    run = find_runs(runs_dir)["first-11111111"]
    for turn in read_answer(run, run.batches["policy-001"], "relu-000").turns:
        assert "\u202e" not in f"{turn.kernel}{turn.answer}{turn.difference}"


def test_an_unknown_trajectory_is_named(runs_dir: Path) -> None:
    run = find_runs(runs_dir)["first-11111111"]
    with pytest.raises(InputError, match="has no trajectory 'relu-999'"):
        read_answer(run, run.batches["policy-001"], "relu-999")


def test_a_damaged_table_is_named(runs_dir: Path, tmp_path: Path) -> None:
    for place in ("evaluations/policy-000", "x"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / "config.yaml").touch()
    (tmp_path / "evaluations" / "policy-000" / "turns.parquet").write_bytes(b"PAR1 garbage")
    with pytest.raises(InputError, match=r"turns\.parquet: expected a Parquet table"):
        select(find_runs(tmp_path)[tmp_path.name], Wanted())


def test_sources_too_long_to_compare_have_no_difference() -> None:
    assert difference_of("a\n" * 5_000, "b\n" * 5_000) == []
    assert difference_of("a\n-- b\n", "a\n++ c\n") == [
        ("at", "@@ -1,2 +1,2 @@"),
        ("same", " a"),
        ("cut", "--- b"),
        ("add", "+++ c"),
    ]


def test_two_runs_on_the_problems_of_both(runs_dir: Path) -> None:
    runs = find_runs(runs_dir)
    assert {side.run.name for side in sides_by_default(runs)} == set(runs)
    assert [side.batch.key for side in sides_by_default({"first-11111111": runs["first-11111111"]})] == [
        "policy-000",
        "policy-001",
    ]
    first, second = side_of(runs, "first-11111111/policy-001"), side_of(runs, "second-22222222/policy-001")
    problems = {each.problem: each for each in shared_problems(first, second)}
    assert set(problems) == {"relu", "softmax"}
    assert problems["relu"].speedups == (2.0, 3.0)
    best = best_answers(first, second, "relu")
    assert best.is_same
    assert [answer.turns[-1].verdict.speedup for answer in best.answers] == [2.0, 3.0]
    with pytest.raises(InputError, match="expected the name of a run"):
        side_of(runs, "first-11111111/../policy-001")
    with pytest.raises(InputError, match="has no answer to 'gelu'"):
        best_answers(first, second, "gelu")
