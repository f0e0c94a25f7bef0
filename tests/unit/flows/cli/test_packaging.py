"""`kernelmill policy package`: what it writes, prints and refuses before it writes anything."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli.main import run
from flows.cli.options import DEFAULT_CONFIG, config_path


@pytest.fixture
def there(run_folder: Path, tmp_path: Path) -> Callable[[str], str]:
    """A word of a command with `{run}` and `{at}` replaced."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    return lambda word: word.format(run=run_folder, at=tmp_path)


def test_a_policy_is_packaged_and_checked(there: Callable[[str], str], capsys: pytest.CaptureFixture[str]):
    assert run(["policy", "package", there("{run}"), there("{at}/new/package")]) == 0
    assert "policy 2 of demo-" in capsys.readouterr().out
    assert run(["policy", "package", "--check", there("{at}/new/package")]) == 0
    assert "whole: policy 2 of demo-" in capsys.readouterr().out
    Path(there("{at}/new/package/config.json")).write_text("{}")
    assert run(["policy", "package", "--check", there("{at}/new/package")]) == 2
    assert "config.json: damaged" in capsys.readouterr().err
    assert (
        run(["policy", "package", there("{run}@1"), there("{at}/empty"), "--license", "mit", "--base-model", "a/b"])
        == 0
    )
    assert "it was not evaluated, as the card says" in capsys.readouterr().out
    assert "license: mit\n" in Path(there("{at}/empty/README.md")).read_text()


def test_a_package_brings_its_configuration_along(there: Callable[[str], str]):
    assert run(["policy", "package", there("{run}"), there("{at}/package")]) == 0
    folder = Path(there("{at}/package"))
    assert config_path(None, None, folder) == folder / "kernelmill.yaml"
    assert config_path(Path("a.yaml"), None, folder) == config_path(None, Path("a.yaml"), folder) == Path("a.yaml")
    assert config_path(None, None, Path(there("{at}/empty"))) == config_path(None, None) == DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected RUN[@VERSION] and DESTINATION, or --check FOLDER"),
        (["{run}"], "expected RUN[@VERSION] and DESTINATION"),
        (["{run}", "{at}/new", "--check", "{at}/empty"], "--check FOLDER goes without other arguments"),
        (["--check", "{at}/nothing"], "--check: no such folder"),
        (["--check", "{at}/empty"], "expected a package"),
        (["{at}/nothing", "{at}/new"], "RUN: no such folder"),
        (["{run}@9", "{at}/new"], "has no policy 9; it has: 0, 1, 2"),
        (["{run}@x", "{at}/new"], "expected FOLDER or RUN@VERSION, with a whole number"),
        (["{run}", "{at}/full"], "DESTINATION: {at}/full: has content; expected a new or an empty folder"),
        (["{run}", "{at}/file"], "DESTINATION: {at}/file: expected the path of a folder, found a file"),
        (["{run}", "{at}/file/new"], "DESTINATION"),
        (["{run}", "{at}/new", "--license", "Apache 2.0"], "--license: found 'Apache 2.0'"),
    ],
    ids=str,
)
def test_bad_input_is_one_line_and_nothing_is_written(
    arguments: list[str], words: str, there: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before = sorted(tmp_path.rglob("*"))
    assert run(["policy", "package", *map(there, arguments)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert there(words) in line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_destination_that_cannot_be_written(there: Callable[[str], str], capsys: pytest.CaptureFixture[str]):
    place = Path(there("{at}/locked"))
    place.mkdir(mode=0o500)
    if os.access(place, os.W_OK):  # root
        place = Path("/proc")
    assert run(["policy", "package", there("{run}"), str(place / "new")]) == 2
    assert "DESTINATION: cannot write" in capsys.readouterr().err
