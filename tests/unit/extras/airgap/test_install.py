"""The installer on tiny wheels: in two calls, with a piece in each; what is damaged or missing is named."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from extras.airgap import install
from tests.unit.extras.airgap.made_up import bundle, wheel

POINTS = "[console_scripts]\nsay-Hello = small:Speaker.hello [extra]\n"
BODY = "class Speaker:\n    @staticmethod\n    def hello():\n        print('hello')\n"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    source = tmp_path / "wheels"
    source.mkdir()
    wheels = [wheel(source, "small", body=BODY, points=POINTS), wheel(source, "large", "2.5", size=9000)]
    return bundle(tmp_path / "bundle", wheels, limit=6000, host={"pytest": ""})


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, check=False)


def call(folder: Path, environment: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, install.__file__, "--bundle", folder, "--venv", environment)


def test_parts_may_arrive_one_after_another_and_be_deleted(made: Path, tmp_path: Path):
    environment, second = tmp_path / "venv", made / "part-2"
    shutil.move(second, tmp_path / "later")
    done = call(made, environment)
    assert done.returncode == install.MISSING_PARTS, done.stderr
    assert "missing: part-2; copy them" in done.stdout
    shutil.rmtree(made / "part-1")
    shutil.move(tmp_path / "later", second)
    done = call(made, environment)
    assert done.returncode == 0, done.stderr
    assert "complete; check it: " in done.stdout
    python = environment / "bin" / "python"
    assert run(python, "-c", "import large, pytest; print(large.version)").stdout == "2.5\n"  # pytest is the host's
    assert run(environment / "bin" / "say-Hello").stdout == "hello\n"
    assert run(environment / "bin" / "large-run").stdout == "script runs\n"
    assert "0 files installed" in call(made, environment).stdout


def test_a_damaged_file_is_named(made: Path, tmp_path: Path):
    (victim,) = (made / "part-1").glob("large*.001")
    content = bytearray(victim.read_bytes())
    content[100] ^= 1
    victim.write_bytes(content)
    done = call(made, tmp_path / "venv")
    assert done.returncode == 1
    assert f"error: part-1/{victim.name}: damaged" in done.stderr


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"python": "3.7"}, "expected 3.7, which the bundle was made for"),
        ({"glibc": "2.999"}, "expected 2.999 or newer"),
        ({"host": {"no-such-package": ""}}, "has no no-such-package, which the bundle leaves out"),
    ],
)
def test_another_machine_is_refused(made: Path, tmp_path: Path, changed: dict[str, object], says: str):
    path = made / "MANIFEST.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(install.InstallError, match=says) as caught:
        install.install(made, tmp_path / "venv")
    assert caught.value.code == 2
    assert not (tmp_path / "venv").exists()


def test_no_manifest_a_damaged_one_and_a_used_folder_are_refused(made: Path, tmp_path: Path):
    with pytest.raises(install.InstallError, match="no such file, expected the bundle's manifest"):
        install.install(tmp_path, tmp_path / "venv")
    with pytest.raises(install.InstallError, match="found other files, expected an empty folder"):
        install.install(made, made)
    (made / "MANIFEST.json").write_text("{")
    with pytest.raises(install.InstallError, match=r"MANIFEST\.json: damaged"):
        install.install(made, tmp_path / "venv")


def test_a_wheel_cannot_write_outside_of_the_environment(tmp_path: Path):
    source = tmp_path / "wheels"
    source.mkdir()
    path = wheel(source, "evil")
    import zipfile

    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../../../../escaped.py", "")
    folder = bundle(tmp_path / "bundle", [path], 10**6)
    with pytest.raises(install.InstallError, match="leads out of the environment"):
        install.install(folder, tmp_path / "venv")
    assert not list(tmp_path.rglob("escaped.py"))


def test_the_self_test_says_what_holds_and_what_does_not(made: Path, tmp_path: Path):
    environment = tmp_path / "venv"
    assert call(made, environment).returncode == 0
    self_test = Path(install.__file__).with_name("selftest.py")
    manifest = made / "MANIFEST.json"
    stated = json.loads(manifest.read_text())
    stated["packages"] |= {"small": "1.1", "absent": "1.0"}
    manifest.write_text(json.dumps(stated))
    done = run(sys.executable, self_test, "--venv", environment, "--bundle", made)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert "✓ pytest of the host" in lines
    assert "✓ large 2.5" in lines
    assert "✗ small 1.1: found 1.0, expected 1.1" in lines
    assert "✗ absent 1.0: not installed" in lines
    assert any(line.startswith("✗ kernelmill --version: ") for line in lines), lines
    done = run(sys.executable, self_test, "--venv", tmp_path, "--bundle", made)
    assert done.returncode == 2
    assert "found no bin/python, expected what install.py made" in done.stderr
    assert lines[-1] == f"3 of {len(lines) - 1} checks failed"
