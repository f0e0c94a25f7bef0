"""SGLang's archive: what of the wheels it holds, that it is not made twice, and its way into an environment."""

import json
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from extras.airgap import install, selftest, sglang
from extras.airgap.request import Request
from tests.unit.extras.airgap import made_up

FILES = {
    "sglang_kernel-0.4.3-cp310-abi3-manylinux2014_x86_64.whl": (
        "sgl_kernel/__init__.py",
        "sgl_kernel/sm90/common_ops.abi3.so",
        "sgl_kernel/sm100/common_ops.abi3.so",
        "sgl_kernel/flash_ops.abi3.so",
        "include/sgl_kernel.h",
        "sglang_kernel-0.4.3.dist-info/METADATA",
    ),
    "other-1.0-py3-none-any.whl": (
        "other/__init__.py",
        "other/lib/tool.py",
        "test/test_other.py",
        "other-1.0.data/purelib/beside.py",
        "other-1.0.data/scripts/run",
        "other-1.0.dist-info/METADATA",
    ),
}
KEPT = {
    "IPython/__init__.py",
    "IPython/display.py",
    "beside.py",
    "other-1.0.dist-info/METADATA",
    "other/__init__.py",
    "other/lib/tool.py",
    "sgl_kernel/__init__.py",
    "sgl_kernel/sm90/common_ops.abi3.so",
    "sglang_kernel-0.4.3.dist-info/METADATA",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Give two wheels for whatever is downloaded; returns what was asked for."""
    found: list[Sequence[str]] = []

    def download(request: Request, pins: Sequence[str], into: Path, scratch: Path) -> None:
        found.append(pins)
        for wheel, names in FILES.items():
            with zipfile.ZipFile(into / wheel, "w") as archive:
                for name in names:
                    archive.writestr(name, f"Metadata-Version: 2.1\nName: {name[:5]}\nVersion: 1.0\n")

    monkeypatch.setattr(sglang.pip, "download", download)
    return found


def written(tmp_path: Path, python: str = "3.12") -> Path:
    scratch = tmp_path / f"scratch{len(list(tmp_path.iterdir()))}"
    scratch.mkdir()
    sglang.write_archive(Request(tmp_path, python, (), 10**7), tmp_path, scratch, lambda _: None)
    assert not [path for path in scratch.iterdir() if path.is_dir()]
    return tmp_path / sglang.ARCHIVE


def test_it_holds_what_a_server_loads(tmp_path: Path, asked: list[Sequence[str]]) -> None:
    with tarfile.open(written(tmp_path)) as packed:
        files = {item.name for item in packed if item.isfile() and not item.name.endswith(".contents")}
    assert files == KEPT
    assert asked == [[f"{name}=={version}" for name, version in sglang.PACKAGES.items()]]


def test_it_is_made_once_for_a_python(tmp_path: Path, asked: list[Sequence[str]]) -> None:
    first = written(tmp_path).read_bytes()
    assert written(tmp_path).read_bytes() == first
    assert len(asked) == 1
    written(tmp_path, "3.13")
    assert len(asked) == 2
    (tmp_path / sglang.ARCHIVE).write_bytes(first[:100])  # of a call that was interrupted
    written(tmp_path)
    assert len(asked) == 3


def test_it_is_installed_beside_the_environments_packages(
    tmp_path: Path, asked: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made").mkdir()
    written(tmp_path / "made")
    wheels = [made_up.wheel(tmp_path / "made", "first"), tmp_path / "made" / sglang.ARCHIVE]
    bundle = made_up.bundle(tmp_path / "bundle", wheels, limit=400)
    manifest: dict[str, Any] = json.loads((bundle / "MANIFEST.json").read_text())
    manifest["sglang"] = {"sglan": "1.0"}
    (bundle / "MANIFEST.json").write_text(json.dumps(manifest))
    environment = tmp_path / "venv"
    assert install.install(bundle, environment) == 0
    assert f"export KERNELMILL_SGLANG={environment / 'sglang'}" in capsys.readouterr().out
    found = {
        str(path.relative_to(environment / "sglang")) for path in (environment / "sglang").rglob("*") if path.is_file()
    }
    assert {name for name in found if not name.endswith(".contents")} == KEPT
    assert selftest.check_folder(environment / "sglang", {"sglan": "1.0"}) is None
    for expected in ({"sglan": "2.0"}, {"more": "1.0"}):
        assert "expected" in (selftest.check_folder(environment / "sglang", expected) or "")
