"""The commands that the documentation shows: tests/unit/docs parses them, tests/e2e executes them in a copy of the checkout."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PROGRAMS = ("kernelmill", "make", "prefect", "python", "bash", "pip", "ray", "kubectl", "docker", "mkdocs")
SMALL = {
    "iterations": 1,
    "problems": {"train": 16, "heldout": 4},
    "sft": {
        "steps": 60,
        "batch_size": 16,
        "warmup_steps": 5,
        "data": {"compositions": 32, "repair_fraction": 0.0},
    },
    "rollout": {
        "problems_per_iteration": 4,
        "samples_per_problem": 4,
        "threads": 1,
        # So little training makes no kernel right: only their lengths tell answers apart.
        "episode": {"reward": "kernelbench - 0.2*length"},
    },
    "update": {"threads_per_rank": 1, "wanted_groups": None, "most_problems": None},
    "evaluation": {"samples_per_problem": 2, "pass_at": [1, 2], "bootstrap_resamples": 200},
}
"""Settings with which `kernelmill train` takes a minute or two."""
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    (\S.*)$", re.MULTILINE)
_INLINE = re.compile(r"`(kernelmill [a-z-]+[^`]*)`")
_PLACEHOLDER = re.compile(r"…|\[[\w-]|<\w| \| |\bCONFIG\b")
"""A line that shows a form rather than a command."""


def copy_checkout(folder: Path, settings: dict[str, Any]) -> None:
    """Copy what git tracks; the copy's `local.yaml` has these settings over those of the original, `large.yaml`."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in tracked.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    local = folder / "deployments/configs/local.yaml"
    local.rename(local.with_name("large.yaml"))
    local.write_text(yaml.safe_dump({"extends": "large.yaml", "name": "local", **settings}))


def pasted_blocks(page: Path) -> list[str]:
    """Return every block of commands of a page, as a reader would paste it."""
    text = page.read_text(encoding="utf-8")
    fenced = [block for kind, block in _FENCED.findall(text) if kind in ("", "bash", "sh")]
    lines, indented = _FENCED.sub("", text).splitlines(), [""]
    for line in lines:
        if line.startswith("    "):
            indented[-1] += line[4:] + "\n"
        elif indented[-1]:
            indented.append("")
    starts = tuple(f"{program} " for program in (*PROGRAMS, "source"))
    return [block for block in [*fenced, *indented] if block.startswith(starts)]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield (page, words) of every command, those in sentences too; without redirections."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [
            line for kind, block in _FENCED.findall(text) if kind in ("", "bash", "sh") for line in block.splitlines()
        ]
        lines += _INDENTED.findall(_FENCED.sub("", text)) + _INLINE.findall(text)
        for line in lines:
            words = _words(line)
            if words:
                yield str(page.relative_to(ROOT)), words


def _words(line: str) -> list[str]:
    first = line.strip().split(" ")[0].rpartition("/")[2]
    if first not in PROGRAMS or _PLACEHOLDER.search(line.split("#")[0]):
        return []
    words = shlex.split(line, comments=True)
    if ">" in words:
        words = words[: words.index(">")]
    return [first, *(word for word in words[1:] if word != "&")]
