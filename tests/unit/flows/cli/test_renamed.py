"""Commands that moved into groups are still found by their old names."""

import re

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.cli.renamed import MOVED


def plain(text: str) -> str:
    """A help text without the colours that a terminal may ask for."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize(("old", "new"), [*MOVED.items(), ("serve", ("serve", "flows"))])
def test_an_old_name_warns_and_is_the_new_command(old: str, new: tuple[str, ...]):
    asked = CliRunner().invoke(app, [old, "--no-such-option"])
    renamed = CliRunner().invoke(app, [*new, "--no-such-option"])
    assert asked.stderr.startswith(f"kernelmill {old} is called kernelmill {' '.join(new)} now")
    assert plain(asked.stderr).endswith(plain(renamed.stderr))
    assert "No such command" not in asked.stderr
    assert f"{' '.join(new)} " in plain(renamed.stderr)


@pytest.mark.parametrize("words", [["serve", "--help"], ["serve", "judge", "--help"], ["judge", "score", "--help"]])
def test_new_names_warn_of_nothing(words: list[str]):
    asked = CliRunner().invoke(app, words)
    assert (asked.exit_code, asked.stderr) == (0, "")
