"""The documentation: every page is reachable, every link leads somewhere, every command that is shown is one that exists."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented import PAGES, ROOT, commands

from flows.cli.reference_pages import pages
from flows.settings.configuration import RunConfig, apply_override, check_configuration
from flows.settings.explanation import setting_names

DOCS = Path("docs")
PREFECT = {
    ("server", "start"), ("server", "stop"), ("flow-run", "cancel"), ("worker", "start"), ("deployment", "run"), ("gcl", "create"),
}  # fmt: skip
DEPLOYED = {f"{flow}/local" for flow in ("training", "training-iteration", "sft", "evaluation", "compare")}
"""By `kernelmill deploy deployments/configs/local.yaml` and `kernelmill serve flows`."""
FOUND = list(commands())


def test_commands_are_found():
    assert len(FOUND) > 60
    assert {words[0] for _, words in FOUND} >= {"kernelmill", "make", "prefect", "python", "ray", "kubectl"}


@pytest.mark.parametrize(("page", "words"), FOUND, ids=[f"{page}: {' '.join(words)}"[:90] for page, words in FOUND])
def test_a_command_exists_and_takes_these_arguments(page: str, words: list[str]):
    program, *arguments = words
    match program:
        case "kernelmill":
            _parse(arguments)
        case "make":
            targets = re.findall(r"^([a-z]+):", Path("Makefile").read_text(), re.MULTILINE)
            assert not arguments or arguments[0] in targets
        case "prefect":
            assert tuple(arguments[:1]) in PREFECT or tuple(arguments[:2]) in PREFECT
            if arguments[:2] == ["deployment", "run"]:
                assert arguments[2] in DEPLOYED
        case "python":
            if "-m" in arguments:
                assert importlib.util.find_spec(arguments[arguments.index("-m") + 1]) is not None
            else:
                assert Path(arguments[0]).exists()
        case _:
            assert all(
                Path(word).exists()
                for word in arguments
                if word.startswith(("deployments/", "tests/", "tools/", ".ci/"))
            )


def test_experimental_settings_stand_behind_the_others_of_their_group():
    page = pages()["settings.md"]
    _, _, update = page.partition("## update\n")
    common, _, experimental = update.partition("## ")[0].partition("Experimental, or for replaying")
    assert "`update.learning_rate`" in common
    assert "`update.dual_clip`" in experimental
    assert "`update.learning_rate`" not in experimental


def _parse(arguments: list[str]) -> None:
    """Parse as the command line would, without running; settings are checked as well."""
    from typer.main import get_command

    from flows.cli.main import app

    command: Any = get_command(app)
    if arguments in ([], ["--help"]):
        return
    while hasattr(command, "commands") and arguments:  # the reference names the groups as well
        name, *arguments = arguments
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
    inline = not arguments  # `kernelmill evaluate` in a sentence names the command
    context = None if inline else command.make_context(command.name, list(arguments))
    parameters = {} if context is None else context.params
    values: dict[str, Any] = {}
    for override in parameters.get("set_") or []:
        apply_override(values, override)
    check_configuration(values, "--set")
    named = [*(parameters.get("configs") or []), parameters.get("config"), parameters.get("config_option")]
    for config in named:
        if config is not None and "/" in str(config):
            assert Path(config).exists()


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_reference_is_the_one_that_is_made(name: str):
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == pages()[name], (
        "run: python -m flows.cli.reference_pages"
    )


def test_every_page_is_in_the_navigation():
    def leaves(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values() if isinstance(entry, dict) else entry:
                yield from leaves(below)

    named = set(leaves(yaml.safe_load(Path("mkdocs.yml").read_text())["nav"]))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if DOCS / "examples" not in page.parents}
    assert named == pages, "name each page in mkdocs.yml"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path):
    """Paths such as `tasks/update/losses.py`, and modules such as `kernels_eval.rewards`."""
    text = page.read_text(encoding="utf-8")
    paths = set(
        re.findall(
            r"(?<![\w./-])((?:flows|extras|tasks|kernels_eval|benchmarks|tools|deployments|tests)/[\w./-]*\w)", text
        )
    )
    missing = [
        path for path in sorted(paths) if not (ROOT / path).exists() and not path.isupper() and "NAME" not in path
    ]
    modules = set(re.findall(r"`(?:python -m )?((?:flows|extras|tasks|kernels_eval)\.[a-z_.]+)", text))
    missing += [name for name in sorted(modules) if not _is_module_or_member(name)]
    assert not missing


def test_the_judges_own_page_names_every_room_and_files_that_exist():
    folder = ROOT / "kernels_eval"
    text = (folder / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w./])((?:[a-z_]+/)*[a-z_]+\.py|(?:[a-z_]+/)+)(?!\w)", text))
    assert len(named) > 40
    # Beside a path, the other files of its room stand by their names alone.
    here = {name for path in folder.rglob("*.py") for name in (path.name, str(path.relative_to(folder)))}
    rooms = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert not {name for name in named if not name.endswith("/")} - here
    assert rooms <= named


def test_settings_that_a_page_names_exist():
    """Names such as `update.learning_rate`: a group of the configuration, and below it."""
    settings = set(setting_names(RunConfig))
    groups = {name.partition(".")[0] for name in settings if "." in name}
    known = settings | {name.rpartition(".")[0] for name in settings}
    known |= {"stages.timeouts_s.rollout", "ray.init", "ray.train.report", "ray.train.torch", "judge.statuses"}
    dotted = re.compile(r"(?<![\w./])((?:" + "|".join(groups) + r")(?:\.[a-z_]+)+)(?![\w/(.])")
    files = re.compile(r"\.(py|json|yaml|md|html|parquet|safetensors|db)$")
    pages = [*PAGES, ROOT / "kernels_eval" / "README.md", *(ROOT / "deployments" / "configs").glob("*.yaml")]
    quoted = [(page, text) for page in pages for text in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))]
    found = [(page, name) for page, text in quoted for name in dotted.findall(text) if not files.search(name)]
    assert len(found) > 100
    assert not [(str(page.relative_to(ROOT)), name) for page, name in found if name not in known]


def _is_module_or_member(name: str) -> bool:
    base = ROOT.joinpath(*name.split("."))
    return any(path.exists() for path in (base, base.with_suffix(".py"), base.parent.with_suffix(".py"), base.parent))
