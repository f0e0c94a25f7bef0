"""`kernelmill view`: what it refuses before it serves or writes anything."""

from pathlib import Path

import pytest

from flows.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: expected a folder of runs, a run, or a data set of trajectories, found none"),
        (["nowhere", "--export", "page.html"], "nowhere: expected a folder of runs"),
        ([".", "--export", "page.pdf"], "--export: page.pdf: expected a name that ends in .html"),
        ([".", "--prefect", "javascript:alert(1)"], "--prefect: found javascript:alert(1), expected an address"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["view", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
