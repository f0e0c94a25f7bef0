"""Building, publishing and reading the problem set, and what a reader refuses."""

import json
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.pipeline.references import ProblemSetRef
from tasks.pipeline.store import MANIFEST, is_available, read_manifest
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import SCHEMA, build_problem_set, read_problems
from tasks.problems.row import Split

HALF = {"train": 50, "heldout": 50, "flag_trivial": False}


def config(path: Path, **changes) -> ProblemsConfig:
    return ProblemsConfig(source="jsonl", path=str(path), **(HALF | changes))


def counts(reference: ProblemSetRef):
    manifest = read_manifest(reference.path)
    assert manifest is not None
    return manifest["metadata"]


def test_built_from_a_source_and_read_back(write, rows, tmp_path):
    reference = build_problem_set(config(write("jsonl", rows)), tmp_path / "set")
    assert is_available(reference)
    train, heldout = read_problems(reference, Split.TRAIN), read_problems(reference, "heldout")
    assert (len(train), len(heldout)) == (reference.train, reference.heldout)
    assert reference.train + reference.heldout == len(rows)
    assert [row.problem.source for row in read_problems(reference)] == [row["code"] for row in rows]
    assert not {row.problem.digest for row in train} & {row.problem.digest for row in heldout}
    assert counts(reference)["loaded"] == len(rows)
    table = pq.read_table(reference.path / "problems.parquet")
    assert table.column_names == SCHEMA.names
    assert table["problem_digest"].to_pylist() == [row.problem.digest for row in read_problems(reference)]


def test_equal_configurations_give_equal_digests(write, rows, tmp_path):
    path = write("jsonl", rows)
    one, other = (build_problem_set(config(path), tmp_path / name) for name in ("one", "other"))
    assert one.digest == other.digest
    assert build_problem_set(config(path, seed=1), tmp_path / "seed").digest != one.digest


def test_a_published_set_is_a_source(write, rows, tmp_path):
    """The same split comes back, whatever the seed: the set says it itself."""
    reference = build_problem_set(config(write("jsonl", rows)), tmp_path / "set")
    source = ProblemsConfig(source="parquet", path=str(reference.path / "problems.parquet"), seed=9, **HALF)
    again = build_problem_set(source, tmp_path / "again")
    assert read_problems(again) == read_problems(reference)


def test_a_generated_set_is_a_source(tmp_path):
    reference = build_problem_set(ProblemsConfig(train=8, heldout=4, harder=3), tmp_path / "set")
    source = ProblemsConfig(source="parquet", path=str(reference.path / "problems.parquet"), **HALF)
    again = read_problems(build_problem_set(source, tmp_path / "again"))
    assert [row.problem for row in again] == [row.problem for row in read_problems(reference)]
    assert all(shlex.quote(row.problem.problem_id) == row.problem.problem_id for row in again)


def test_duplicates_are_dropped_and_counted(write, rows, tmp_path):
    rows.append(rows[0] | {"problem_id": 99, "code": "# the same\n" + rows[0]["code"]})
    reference = build_problem_set(config(write("jsonl", rows)), tmp_path / "set")
    assert counts(reference)["duplicates"] == 1
    assert counts(reference)["loaded"] == len(rows)
    assert len(read_problems(reference)) == len(rows) - 1


def test_limits_are_counted(write, rows, tmp_path):
    reference = build_problem_set(config(write("jsonl", rows), train=2, heldout=2), tmp_path / "set")
    assert (reference.train, reference.heldout) == (2, 2)
    assert counts(reference)["beyond_limits"] == len(rows) - 4


def test_a_given_split_with_an_overlap_is_refused(write, rows, tmp_path):
    for number, row in enumerate(rows):
        row["split"] = "heldout" if number % 2 else "train"
    path = write("jsonl", rows)
    reference = build_problem_set(config(path), tmp_path / "set")
    assert [row.split for row in read_problems(reference)] == [row["split"] for row in rows]

    rows[3]["code"] = "import math\n".join(["", rows[2]["code"]])
    write("jsonl", rows)
    build_problem_set(config(path), tmp_path / "similar")
    rows[3]["code"] = '"""Other words."""\n' + rows[2]["code"]
    write("jsonl", rows)
    with pytest.raises(InputError, match=r"level1_4_exp \(heldout\) is the same program as level1_3_sigmoid \(train\)"):
        build_problem_set(config(path), tmp_path / "same")
    assert not (tmp_path / "same").exists()


def test_similar_problems_across_a_given_split_are_counted(write, rows, problem_source, tmp_path):
    for number, row in enumerate(rows):
        row["split"] = "heldout" if number % 2 else "train"
    rows[3]["code"] = problem_source("sigmoid", rows=4096)
    reference = build_problem_set(config(write("jsonl", rows)), tmp_path / "set")
    assert counts(reference)["train_similar_to_heldout"] == 1


def test_problems_with_a_random_reference_are_left_out_with_the_reason(write, rows, tmp_path, caplog):
    forward = next(line for line in rows[2]["code"].splitlines() if line.strip().startswith("return ") and "x" in line)
    rows[2]["code"] = rows[2]["code"].replace(forward, forward + " + torch.rand_like(x)", 1)
    reference = build_problem_set(config(write("jsonl", rows[:6]), flag_trivial=True), tmp_path / "set")
    assert reference.train + reference.heldout == 5
    assert rows[2]["code"] not in [row.problem.source for row in read_problems(reference)]
    assert counts(reference)["random"] == 1
    assert "is left out: the reference is random" in caplog.text


def test_too_few_problems_say_what_to_change(write, rows, tmp_path):
    with pytest.raises(InputError, match=r"no (train|heldout) problem among 1.*problems\.heldout"):
        build_problem_set(config(write("jsonl", rows[:1])), tmp_path / "set")


def test_a_reference_to_another_content_is_refused(write, rows, tmp_path):
    path = write("jsonl", rows)
    reference = build_problem_set(config(path), tmp_path / "set")
    build_problem_set(config(path, seed=1), tmp_path / "set")
    with pytest.raises(InputError, match=f"expected the problem set {reference.digest}, found"):
        read_problems(reference)
    shutil.rmtree(reference.path)
    with pytest.raises(InputError, match="expected a published artifact"):
        read_problems(reference)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"problem_id": ["a"]}), "found version none, columns problem_id"),
        (pa.table({name: pa.array([], SCHEMA.field(name).type) for name in SCHEMA.names}), "found version none"),
        (
            SCHEMA.empty_table().replace_schema_metadata({b"kernelmill.problems.version": b"3"}),
            "expected a problem set of schema version 2; found version 3",
        ),
    ],
)
def test_a_foreign_table_is_refused(table, message, write, rows, tmp_path):
    reference = build_problem_set(config(write("jsonl", rows)), tmp_path / "set")
    pq.write_table(table, reference.path / "problems.parquet")
    with pytest.raises(InputError, match=message):
        read_problems(reference)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_damage_is_found_or_harmless(data, write, rows, tmp_path):
    """Any bytes cut off or changed: an InputError, or exactly the rows that were published. Never other rows."""
    folder = tmp_path / "set"
    reference = (
        build_problem_set(config(write("jsonl", rows)), folder)
        if not folder.exists()
        else ProblemSetRef(
            uri=str(folder), digest=json.loads((folder / MANIFEST).read_text())["digest"], train=0, heldout=0
        )
    )
    whole = (folder / "problems.parquet").read_bytes()
    published = read_problems(reference)
    offset = data.draw(st.integers(0, len(whole) - 1))
    damaged = data.draw(
        st.one_of(
            st.just(whole[:offset]),
            st.binary(min_size=1, max_size=4).map(lambda put: whole[:offset] + put + whole[offset + len(put) :]),
        )
    )
    (folder / "problems.parquet").write_bytes(damaged)
    try:
        found = read_problems(reference)
    except InputError:
        pass
    else:
        assert found == published
    finally:
        (folder / "problems.parquet").write_bytes(whole)


def test_the_bundled_suite_is_a_problem_set(tmp_path):
    reference = build_problem_set(ProblemsConfig(train=20, heldout=8), tmp_path / "set")
    assert (reference.train, reference.heldout) == (20, 8)
    assert {row.problem.level for row in read_problems(reference)} <= {1, 2, 3}
    assert all(row.reference_kernel for row in read_problems(reference))


def test_a_set_of_the_version_without_tiers_is_read(write, rows, tmp_path):
    reference = build_problem_set(config(write("jsonl", rows)), tmp_path / "set")
    expected, path = read_problems(reference), reference.path / "problems.parquet"
    old = pq.read_table(path).drop(["tier"]).replace_schema_metadata({b"kernelmill.problems.version": b"1"})
    pq.write_table(old, path)
    assert read_problems(reference) == expected


def test_tiers_are_published(tmp_path):
    generated = build_problem_set(ProblemsConfig(train=20, heldout=6, harder=3), tmp_path / "set")
    tiers = [row.tier for row in read_problems(generated, Split.HELDOUT)]
    assert tiers == [*["standard"] * 6, "longer", "new_pairs", "new_shapes"]


def test_tiers_of_a_source_are_those_of_its_held_out_problems(write, rows, tmp_path):
    tiered = [
        {**row, "split": "heldout" if number % 2 else "train", "tier": "longer"} for number, row in enumerate(rows)
    ]
    reference = build_problem_set(config(write("jsonl", tiered)), tmp_path / "set")
    assert {row.tier for row in read_problems(reference, Split.HELDOUT)} == {"longer"}
    assert {row.tier for row in read_problems(reference, Split.TRAIN)} == {"standard"}


def test_an_unknown_tier_is_named(write, rows, tmp_path):
    with pytest.raises(InputError, match=r"column `tier`: expected `standard`, `longer`, .*, found 'hard'"):
        build_problem_set(config(write("jsonl", [{**row, "tier": "hard"} for row in rows])), tmp_path / "set")


def test_all_problems_may_be_held_out(write, rows, tmp_path):
    reference = build_problem_set(config(write("jsonl", rows), train=0, heldout=len(rows)), tmp_path / "set")
    assert (reference.train, reference.heldout) == (0, len(rows))
    assert {row.split for row in read_problems(reference)} == {Split.HELDOUT}
