"""The environment's package builds in the form that verifiers' hub takes, and names what our adapter exports."""

import ast
import email
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[4]
PACKAGE = ROOT / "docs" / "examples" / "verifiers_environment"
BUILD = "import setuptools.build_meta as backend; print(backend.build_wheel('dist'))"


def test_the_wheel_has_module_readme_and_requirement(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    (folder / "dist").mkdir()
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (folder / "dist").glob("kernelmill_kernels-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = email.message_from_bytes(archive.read(next(name for name in names if name.endswith("METADATA"))))
    assert "kernelmill_kernels.py" in names
    assert metadata["Name"] == "kernelmill-kernels"
    assert metadata.get_all("Requires-Dist") == ["kernelmill[verifiers]"]
    assert "## Arguments" in str(metadata.get_payload())


def test_it_exports_what_the_adapter_has_and_its_requirement_is_an_extra_of_ours() -> None:
    module = ast.parse((PACKAGE / "kernelmill_kernels.py").read_text())
    (imported,) = (node for node in module.body if isinstance(node, ast.ImportFrom))
    adapter = ast.parse((ROOT / "extras" / "adapters" / "verifiers.py").read_text())
    classes = {node.name for node in adapter.body if isinstance(node, ast.ClassDef)}
    assert imported.module == "extras.adapters.verifiers"
    assert {alias.name for alias in imported.names} <= classes
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "verifiers" in extras
