"""Resolution of a bundle: what is read from uv's lock, what it is asked for, its refusals; wheels and their names."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from extras.airgap import resolution, wheels
from extras.airgap.request import Request, parse_host
from kernels_eval.errors import InputError
from tests.unit.extras.airgap import made_up

LOCK = """
lock-version = "1.0"

[[packages]]
name = "drawn"
version = "3.1"
wheels = [
  { url = "https://index.invalid/drawn-3.1-py3-none-any.whl", hashes = { sha256 = "aa" } },
  { url = "https://index.invalid/drawn-3.1-cp312-cp312-manylinux2014_x86_64.whl", hashes = { sha256 = "bb" } },
]

[[packages]]
name = "local"
version = "1.0+cpu"
wheels = [{ path = "wheels/local-1.0+cpu-py3-none-any.whl", hashes = { sha256 = "cc" } }]

[[packages]]
name = "mill"
version = "0.2.0"
archive = { path = "mill-0.2.0-py3-none-any.whl", hashes = { sha256 = "dd" } }

[[packages]]
name = "sources-only"
version = "2.0"
sdist = { url = "https://index.invalid/sources_only-2.0.tar.gz", hashes = { sha256 = "ee" } }
"""


def request(out: Path, host: str = "", glibc: int = 28) -> Request:
    return Request(out, "3.12", parse_host(host), 10**7, glibc=glibc)


def test_a_lock_names_the_most_specific_wheel_of_each_package(tmp_path: Path):
    (tmp_path / "pylock.toml").write_text(LOCK)
    found = {item.name: item for item in resolution.read_lock(tmp_path / "pylock.toml", request(tmp_path))}
    assert found["drawn"].file == "drawn-3.1-cp312-cp312-manylinux2014_x86_64.whl"
    assert found["drawn"].sha256 == "bb"
    assert found["mill"].url == (tmp_path / "mill-0.2.0-py3-none-any.whl").as_uri()
    assert found["local"].file == "local-1.0+cpu-py3-none-any.whl"
    assert found["sources-only"].url is None


def test_the_hosts_packages_bound_others_in_the_stated_or_the_installed_version():
    pins = resolution.host_pins(parse_host("torch==2.11.0,pytest,triton,nothing-like-it,other==3.1"))
    assert pins == [f"pytest=={pytest.__version__}", "nothing-like-it", "other==3.1"]


def test_a_version_of_the_host_that_kernelmill_does_not_accept_is_refused():
    own = [Requirement("torch>=2.11"), Requirement("numpy>=2")]
    resolution.check_host(parse_host("torch==2.11.0+cu130,numpy,other==0"), own)
    with pytest.raises(InputError, match=r"--host-has: found torch==2\.5\.0, expected torch>=2\.11"):
        resolution.check_host(parse_host("torch==2.5.0"), own)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (
            "error: No solution found when resolving dependencies\n  cause: Because a==2 depends on b<2, stop.\n"
            "         And because only a==2 is there, you stop.\n",
            "uv found no set of packages: Because a==2 depends on b<2, stop.",
        ),
        (
            "error: Failed to fetch: http://x/simple/\n  cause: client error (Connect)\n",
            "does not reach its package index",
        ),
        ("", "uv found no set of packages"),
    ],
)
def test_uvs_failure_is_one_sentence(output: str, says: str):
    error = str(resolution.failure_of(output))
    assert says in error
    assert "\n" not in error


def test_the_host_and_what_only_it_requires_are_left_out_within_its_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """uv itself, on wheels of a folder: no index is asked."""
    links = tmp_path / "links"
    links.mkdir()
    for name, version, requires in (
        ("framework", "1.0", ["parts<2", "only-of-the-framework"]),
        ("only_of_the_framework", "1.0", []),
        ("parts", "1.5", ["torch>=2"]),
        ("parts", "2.0", []),
        ("old", "1.0", []),
    ):
        made_up.wheel(links, name, version, requires=requires)
    own = made_up.wheel(
        tmp_path,
        "kernelmill",
        "0.1",
        requires=[
            "framework; extra == 'train'",
            "parts",
            "torch",
            "old; python_version < '3.12'",
            "docs; extra == 'x'",
        ],
    )
    (tmp_path / "uv.toml").write_text(f"no-index = true\nfind-links = ['{links}']\n")
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = resolution.resolve(request(tmp_path, "torch==2.11.0,framework==1.0"), own, scratch)
    assert {item.name: item.version for item in found} == {"kernelmill": "0.1", "parts": "1.5"}
    assert {item.file for item in found} == {"kernelmill-0.1-py3-none-any.whl", "parts-1.5-py3-none-any.whl"}
    (links / "parts-1.5-py3-none-any.whl").unlink()
    with pytest.raises(InputError, match=r"uv found no set of packages: Because .*parts"):
        resolution.resolve(request(tmp_path, "torch==2.11.0,framework==1.0"), own, scratch)


def test_the_oldest_glibc_is_that_of_the_most_demanding_wheel():
    names = ["a-1-py3-none-any.whl", "b-1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"]
    assert wheels.needed_glibc(names) == "2.17"
    assert wheels.needed_glibc([*names, "c-1-cp312-abi3-manylinux_2_28_x86_64.whl"]) == "2.28"
