"""A release: one version everywhere, a dated changelog of one line a change, a workflow that a fork can run."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_one_version_and_one_date_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == VERSION
    newest = re.search(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)$", CHANGELOG, re.MULTILINE)
    assert newest is not None
    assert newest.groups() == (VERSION, str(citation["date-released"]))


def test_a_change_is_one_line():
    lines = CHANGELOG.partition("## ")[2].splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) > 50
    assert not [line for line in lines if line.startswith("  ")], "an entry goes on in a second line"


def workflow() -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))


def test_the_workflow_needs_no_secret_and_lints_tests_and_installs_the_wheel():
    assert "secrets." not in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    jobs = workflow()["jobs"]
    commands = {name: "\n".join(step["run"] for step in job["steps"] if "run" in step) for name, job in jobs.items()}
    assert set(commands) == {"lint", "quick", "wheel"}
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {commands[name].removeprefix("make ") for name in ("lint", "quick")} <= set(targets)
    case = re.search(r"\$GITHUB_WORKSPACE/(\S+?)\"", commands["wheel"])
    assert case is not None
    assert (ROOT / case[1]).is_file()


def test_its_pythons_are_those_that_the_package_takes():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    low, high = map(int, re.findall(r"3\.(\d+)", wanted))
    for version in workflow()["jobs"]["quick"]["strategy"]["matrix"]["python-version"]:
        assert low <= int(version.partition(".")[2]) < high


def test_forms_for_issues_ask_for_something():
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert forms
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert any(field["validations"]["required"] for field in form["body"] if "validations" in field)


def test_badges_say_what_the_package_says():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    low, high = map(int, re.findall(r"3\.(\d+)", project["requires-python"]))
    badges = {
        name: (ROOT / "docs" / "assets" / f"{name}.svg").read_text(encoding="utf-8") for name in ("python", "license")
    }
    assert f">3.{low} – 3.{high - 1}<" in badges["python"]
    assert f">{project['license']}<" in badges["license"]
    shown = re.findall(r"docs/assets/(\w+)\.svg", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(shown) == set(badges)
