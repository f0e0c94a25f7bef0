"""The wheel: what it holds, and that the judge works where nothing but its own dependencies is installed.

The bare environment is made without a package index: a fresh venv, the unpacked wheel, and links to those distributions
alone that the wheel's metadata asks for, directly or not.
"""

import json
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from documented import pasted_blocks
from packaging.requirements import Requirement

from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM

# Half a minute on two quiet cores, several where others work beside.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[4]
NOT_WITH_THE_JUDGE = {
    "prefect", "ray", "deepspeed", "transformers", "peft", "great-expectations", "wandb", "polars", "pandas", "pyarrow",
}  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(source)], check=True)
    for name in ("pyproject.toml", "LICENSE", "README.md"):  # as they are here, not as committed
        (source / name).write_bytes((ROOT / name).read_bytes())
    command = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(source)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, timeout=240)
    return next(folder.glob("kernelmill-*.whl"))


def closure(wheel: Path, extras: tuple[str, ...]) -> dict[str, Distribution]:
    """The distributions that `pip install kernelmill[extras]` would add to an empty environment, by canonical name."""
    own = PathDistribution(zipfile.Path(wheel, f"{wheel.name.rsplit('-py3', 1)[0]}.dist-info/"))  # type: ignore[arg-type]
    found: dict[str, Distribution] = {}
    waiting = [(line, extra) for line in own.requires or [] for extra in ("", *extras)]
    while waiting:
        line, extra = waiting.pop()
        requirement = Requirement(line)
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or name == "kernelmill":
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        found[name] = distribution(requirement.name)
        waiting += [(needed, "") for needed in found[name].requires or []]
    return found


def bare_environment(folder: Path, wheel: Path, extras: tuple[str, ...]) -> Path:
    """Return the interpreter of an environment with the wheel and its dependencies."""
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(packages)
    for found in closure(wheel, extras).values():
        for name in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(found.locate_file(name))))
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [str(python), "-I", *arguments], capture_output=True, text=True, timeout=800, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_wheel_holds_licence_types_and_data(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert any(re.fullmatch(r"kernelmill-.*\.dist-info/licenses/LICENSE", name) for name in names)
    assert {f"{package}/py.typed" for package in ("flows", "extras", "tasks", "kernels_eval")} <= names
    assert "kernels_eval/compile/cuda_headers/ATen/cuda/CUDAContext.h" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "tools/", "docs/"))]


def test_the_judge_asks_for_little(wheel: Path):
    assert not NOT_WITH_THE_JUDGE & closure(wheel, ("judge",)).keys()
    assert len(closure(wheel, ("judge",))) <= 40
    assert closure(wheel, ("train",)).keys() >= {"prefect", "ray", "deepspeed", "transformers", "fastapi", "torch"}


def test_a_kernel_is_judged_where_only_the_judge_is_installed(wheel: Path, tmp_path: Path):
    python = bare_environment(tmp_path / "venv", wheel, ("judge",))
    (tmp_path / "problem.py").write_text(EXAMPLE_PROBLEM)
    (tmp_path / "kernel.py").write_text(EXAMPLE_KERNEL)
    arguments = (
        "-m",
        "flows.cli.main",
        "judge",
        "score",
        "problem.py",
        "kernel.py",
        "--json",
        "--set",
        "judge.workers=1",
    )
    verdict = json.loads(run(python, *arguments, cwd=tmp_path))
    assert verdict["status"] == "correct"
    code = "import sys, kernels_eval.judge, kernels_eval.server.serving as s; print(s.__file__, *sorted(sys.modules))"
    place, *modules = run(python, "-c", code, cwd=tmp_path).split()
    assert str(tmp_path) in place  # the wheel's modules, not the checkout's
    assert not {"torch", "triton", "numpy", *NOT_WITH_THE_JUDGE} & set(modules)


def test_a_command_whose_extra_is_missing_says_which(wheel: Path, tmp_path: Path):
    python = bare_environment(tmp_path / "venv", wheel, ())
    done = subprocess.run(
        [str(python), "-I", "-m", "flows.cli.main", "serve", "judge"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert "kernelmill[judge]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stranger_configures_and_plans_from_an_empty_folder(wheel: Path, tmp_path: Path):
    python = bare_environment(tmp_path / "venv", wheel, ("train",))
    empty = tmp_path / "empty"
    empty.mkdir()
    command = ("-m", "flows.cli.main")
    said = run(python, *command, "init", "mine.yaml", cwd=empty)
    assert "kernelmill train mine.yaml" in said
    for named in ("mine.yaml", "local", "deployments/configs/test.yaml"):
        assert "two CPU cores" in run(python, *command, "plan", named, cwd=empty)
    said = run(python, *command, "plan", "qwen3-8b-multi-turn", "--set", "update.deepspeed=zero3", cwd=empty)
    assert "tokens/s trained" in said


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with all that training needs, and pytest."""
    return bare_environment(tmp_path_factory.mktemp("installed") / "venv", wheel, ("train", "dev"))


DOORS = ROOT / "docs" / "doors.md"
EXAMPLES = ROOT / "docs" / "examples"


def test_every_door_s_example_does_what_its_page_says_with_the_installed_wheel(installed: Path, tmp_path: Path):
    (page, tests) = (tmp_path / "docs" / "doors.md", tmp_path / "tests" / "unit" / "docs" / "test_doors_page.py")
    for path, of in ((page, DOORS), (tests, ROOT / "tests" / "unit" / "docs" / tests.name)):
        path.parent.mkdir(parents=True)
        shutil.copy(of, path)
    for package in ("flows", "tasks", "kernels_eval"):
        where = run(installed, "-c", f"import {package}; print({package}.__file__)", cwd=tmp_path)
        assert where.startswith(str(installed.parents[1])), "the wheel's modules, not the checkout's"
    options = ("-q", "--import-mode=importlib", "-p", "no:cacheprovider")
    said = run(installed, "-m", "pytest", *options, str(tests.relative_to(tmp_path)), cwd=tmp_path)
    assert re.fullmatch(r"\d+ passed in .*", said.splitlines()[-1])


def test_the_commands_of_the_doors_find_their_files_in_the_folder_they_are_started_in(installed: Path, tmp_path: Path):
    page = DOORS.read_text(encoding="utf-8")
    for name, text in re.findall(r"```python\n# (my_\w+\.py)\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(text)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FOLDER" / "add.txt").write_text(f"1\n{EXAMPLE_PROBLEM}")
    (tmp_path / "FOLDER" / "add.problem.py").write_text(EXAMPLE_PROBLEM)
    (tmp_path / "FOLDER" / "add.kernel.py").write_text(EXAMPLE_KERNEL)
    commands = [block.split("kernelmill ")[1] for block in pasted_blocks(DOORS)]
    settings = {part for command in commands for part in re.findall(r'--set "?([^"\s]+(?: \+ [^"\s]+)?)', command)}
    assert len(settings) > len(commands)
    chosen = [part for setting in sorted(settings) for part in ("--set", setting)]
    said = run(installed, "-m", "flows.cli.main", "plan", *chosen, cwd=tmp_path)
    assert "two CPU cores" in said
    (tmp_path / "my_rewards.py").unlink()
    refused = subprocess.run(
        [str(installed), "-I", "-m", "flows.cli.main", "plan", *chosen],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert (refused.returncode, "there is no module my_rewards" in refused.stderr) == (2, True), refused.stderr


def test_the_back_end_s_example_judges_a_kernel(installed: Path, tmp_path: Path):
    text = re.search(r"```python\n# my_backends\.py\n(.*?)```", DOORS.read_text(encoding="utf-8"), re.DOTALL)
    assert text is not None
    (tmp_path / "my_backends.py").write_text(text[1])
    (tmp_path / "PROBLEM").write_text(EXAMPLE_PROBLEM)
    (tmp_path / "KERNEL").write_text(EXAMPLE_KERNEL)
    command = next(block for block in pasted_blocks(DOORS) if "--backend" in block)
    words = ("-m", "flows.cli.main", *command.split()[1:], "--json", "--set", "judge.workers=1")
    verdict = json.loads(run(installed, *words, cwd=tmp_path))
    assert verdict["status"] == "correct"


def test_the_loop_in_one_file_learns_and_the_reward_function_is_found(installed: Path, tmp_path: Path):
    shutil.copy(EXAMPLES / "teaching_loop.py", tmp_path)
    sizes = ("--sft-steps", "60", "--iterations", "1", "--problems", "2", "--samples", "3", "--heldout", "2")
    said = run(installed, "teaching_loop.py", *sizes, "--workers", "1", cwd=tmp_path)
    assert "held out, greedy, after RL: mean reward" in said
    shutil.copy(EXAMPLES / "openrlhf_reward.py", tmp_path)
    code = "import runpy; print(callable(runpy.run_path('openrlhf_reward.py')['reward_func']))"
    assert run(installed, "-c", code, cwd=tmp_path) == "True\n"
