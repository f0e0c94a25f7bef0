"""Dependency graph of a made-up report: the host's packages and what only they require are left out."""

from packaging.requirements import Requirement

from extras.airgap import graph, host, wheels
from extras.airgap.request import parse_host


def report(**requires: list[str]) -> dict[str, graph.Resolved]:
    items = [
        {
            "metadata": {"name": name, "version": "1.0", "requires_dist": lines},
            "download_info": {
                "url": f"https://index.invalid/{name}-1.0%2Bcpu-py3-none-any.whl",
                "archive_info": {"hashes": {"sha256": "0" * 64}},
            },
        }
        for name, lines in requires.items()
    ]
    return graph.read_report({"install": items})


REPORT = report(
    mill=["judge; extra == 'train'", "big", "Data_Frames[fast]>=1; extra == 'train'", "docs; extra == 'docs'"],
    judge=["old; python_version < '3.12'", "shared"],
    big=["only-of-big", "shared"],
    data_frames=["speedups; extra == 'fast'", "judge", "windows; sys_platform == 'win32'"],
    speedups=[],
    shared=[],
    old=[],
    docs=[],
    **{"only-of-big": []},
)


def test_the_hosts_packages_and_what_only_they_require_are_left_out():
    walk = graph.walk(REPORT, "mill", {"train"}, {"big"}, "3.12")
    assert set(walk.reached) == {"mill", "judge", "data-frames", "speedups", "shared"}
    assert walk.missing == []


def test_markers_are_those_of_the_target():
    assert "old" in graph.walk(REPORT, "mill", {"train"}, set(), "3.11").reached
    assert "old" not in graph.walk(REPORT, "mill", {"train"}, set(), "3.12").reached


def test_what_the_resolution_lacks_is_named_without_its_marker():
    packages = report(mill=["newer>=2; python_version >= '3.12'"])
    assert graph.walk(packages, "mill", set(), set(), "3.12").missing == ["newer>=2"]
    assert graph.walk(packages, "mill", set(), set(), "3.11").missing == []


def test_a_circle_ends():
    packages = report(mill=["mill[more]", "a"], a=["mill"])
    assert set(graph.walk(packages, "mill", set(), set(), "3.12").reached) == {"mill", "a"}


def test_a_wheels_name_is_that_of_its_address():
    assert wheels.file_name(REPORT["judge"]) == "judge-1.0+cpu-py3-none-any.whl"


def test_the_oldest_glibc_is_that_of_the_most_demanding_wheel():
    names = ["a-1-py3-none-any.whl", "b-1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"]
    assert wheels.needed_glibc(names) == "2.17"
    assert wheels.needed_glibc([*names, "c-1-cp312-abi3-manylinux_2_28_x86_64.whl"]) == "2.28"


def test_stand_ins_bound_what_the_index_may_choose(tmp_path):
    packages = parse_host("torch==2.11.0,pydantic,nothing-like-it==3.1")
    made, constraints = host.write_stand_ins(packages, [Requirement("torch>=2.0")], tmp_path)
    assert constraints == ["nothing-like-it==3.1"]
    torch, pydantic = made
    assert torch.endswith("torch-2.11.0-py3-none-any.whl")
    assert "pydantic-core" in {line.name for line in wheels.own_requirements(tmp_path / pydantic)}
    assert wheels.own_requirements(tmp_path / torch) == []
