"""Installer of a bundle: `python3 install.py --venv FOLDER`, beside MANIFEST.json and the parts that have arrived.

Needs the standard library alone, and no pip. May be called again as more parts arrive; what is installed may then be
deleted. Exit codes: 0 everything is installed; 1 a file is damaged; 2 this machine or a folder is not as expected; 3
parts are missing.
"""

import argparse
import configparser
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import site
import stat
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

COPY_BYTES = 1 << 20
MISSING_PARTS = 3
SGLANG = "sglang"
"""Folder in the environment that only SGLang's server sees."""
_STATE = "airgap"
"""Folder in the environment that lists the installed files and holds pieces of incomplete ones."""
_LAUNCHER = """#!{python}
import sys
from {module} import {attribute}
if __name__ == "__main__":
    sys.exit({call}())
"""


class InstallError(Exception):
    """Reason why nothing more is installed, with the exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def main(arguments: list[str] | None = None) -> int:
    """Install what is there, and return the exit code."""
    parser = argparse.ArgumentParser(description="Install a bundle of kernelmill into a virtual environment.")
    here = Path(__file__).resolve().parent
    parser.add_argument("--bundle", type=Path, default=here, help="folder with MANIFEST.json and the parts")
    parser.add_argument("--venv", type=Path, default=Path("venv"), help="environment that is made (default: venv)")
    options = parser.parse_args(arguments)
    try:
        return install(options.bundle, options.venv.absolute())
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 2


def install(bundle: Path, environment: Path) -> int:
    """Install the parts that are there into an environment, and say which are missing."""
    manifest = read_manifest(bundle)
    check_host(manifest)
    make_environment(environment)
    state = environment / _STATE
    installed = _read_installed(state)
    before = len(installed)
    for file in manifest["files"]:
        if installed.get(file["name"]) == file["sha256"]:
            continue
        whole = complete(bundle, state, file)
        if whole is not None:
            unpack(whole, environment, manifest)
            installed[file["name"]] = file["sha256"]
            _write_installed(state, installed)
            for path in state.glob(f"{file['name']}*"):
                path.unlink()
    return _say_what_is_missing(bundle, environment, manifest, installed, before)


def _say_what_is_missing(
    bundle: Path, environment: Path, manifest: dict[str, Any], installed: dict[str, str], before: int
) -> int:
    files = manifest["files"]
    print(f"{len(installed) - before} files installed in {environment}, {len(installed)} of {len(files)} in all")
    left = [file for file in files if file["name"] not in installed]
    if not left:
        if manifest.get("sglang"):
            print(f"SGLang: export KERNELMILL_SGLANG={environment / SGLANG}")
        print(f"complete; check it: python3 {bundle / 'selftest.py'} --venv {environment}")
        return 0
    parts = sorted(
        {piece["part"] for file in left for piece in file["pieces"] if not _piece_is_there(bundle, environment, piece)},
        key=lambda part: int(part.rpartition("-")[2]),
    )
    print(f"missing: {', '.join(parts)}; copy them to {bundle} and call this again")
    return MISSING_PARTS


def _piece_is_there(bundle: Path, environment: Path, piece: dict[str, Any]) -> bool:
    return (bundle / piece["part"] / piece["name"]).is_file() or (environment / _STATE / piece["name"]).is_file()


def read_manifest(bundle: Path) -> dict[str, Any]:
    """Return the manifest of a bundle."""
    path = bundle / "MANIFEST.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InstallError(f"{path}: no such file, expected the bundle's manifest beside its parts") from None
    except ValueError:
        raise InstallError(f"{path}: damaged, copy it again", 1) from None


def check_host(manifest: dict[str, Any]) -> None:
    """Raise InstallError if this machine or its Python is not the one that the bundle was made for."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != manifest["python"]:
        raise InstallError(f"found Python {here}, expected {manifest['python']}, which the bundle was made for")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise InstallError(f"found {sys.platform} on {platform.machine()}, expected Linux on x86_64")
    library, version = platform.libc_ver()
    if library == "glibc" and tuple(map(int, version.split("."))) < tuple(map(int, manifest["glibc"].split("."))):
        raise InstallError(f"found glibc {version}, expected {manifest['glibc']} or newer")
    for name in manifest["host"]:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise InstallError(
                f"{sys.executable} has no {name}, which the bundle leaves out: call this with the Python that has it, "
                "or make a bundle with it"
            ) from None


def make_environment(environment: Path) -> None:
    """Make a virtual environment without pip that sees the host's packages behind its own, unless it is there."""
    state = environment / _STATE
    if state.is_dir():
        return
    if environment.exists() and any(environment.iterdir()):
        raise InstallError(f"--venv {environment}: found other files, expected an empty folder or none")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(environment)
    lines = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in host_folders())
    (_site_folder(environment) / "zz_host.pth").write_text(lines, encoding="utf-8")
    state.mkdir()


def host_folders() -> list[str]:
    """Return the folders of packages that this Python sees, in its order."""
    known = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        known.append(site.getusersitepackages())
    return [path for path in sys.path if path and (path in known or path.endswith(("site-packages", "dist-packages")))]


def _site_folder(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def complete(bundle: Path, state: Path, file: dict[str, Any]) -> Path | None:
    """Return a file of the bundle, whole and checked; None if pieces are missing. Keeps the pieces that are there."""
    pieces = file["pieces"]
    if len(pieces) == 1:
        path = bundle / pieces[0]["part"] / pieces[0]["name"]
        return _checked(path, pieces[0]) if path.is_file() else None
    for piece in pieces:
        path, kept = bundle / piece["part"] / piece["name"], state / piece["name"]
        if not kept.is_file() and path.is_file():
            part = state / (piece["name"] + ".part")
            shutil.copyfile(_checked(path, piece), part)
            part.replace(kept)
    if not all((state / piece["name"]).is_file() for piece in pieces):
        return None
    whole = state / file["name"]
    with whole.open("wb") as joined:
        for piece in pieces:
            with (state / piece["name"]).open("rb") as given:
                shutil.copyfileobj(given, joined, COPY_BYTES)
    return _checked(whole, file)


def _checked(path: Path, entry: dict[str, Any]) -> Path:
    if path.stat().st_size != entry["size"] or sha256_of(path) != entry["sha256"]:
        shown = f"{path.parent.name}/{path.name}"
        raise InstallError(f"{shown}: damaged (its SHA-256 is not the manifest's), copy it again", 1)
    return path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, environment: Path, manifest: dict[str, Any]) -> None:
    """Unpack a wheel into an environment, SGLang beside it, or another archive into its `share/kernelmill`."""
    if archive.suffix == ".xz":
        with tarfile.open(archive, "r:xz") as packed:
            packed.extractall(environment / SGLANG, filter="data")
        return
    is_wheel = archive.suffix == ".whl"
    folder = _site_folder(environment) if is_wheel else environment / "share" / "kernelmill"
    with zipfile.ZipFile(archive) as opened:
        for item in opened.infolist():
            if item.is_dir():
                continue
            target = (_place(item.filename, folder, environment) if is_wheel else folder / item.filename).resolve()
            if not target.is_relative_to(environment.resolve()):
                raise InstallError(f"{archive.name}: {item.filename} leads out of the environment")
            target.parent.mkdir(parents=True, exist_ok=True)
            is_script = target.parent == (environment / "bin").resolve()
            with opened.open(item) as given:
                _write(given.read() if is_script else None, given, target, environment)
            if is_script or (item.external_attr >> 16) & stat.S_IXUSR:
                target.chmod(0o755)
        if is_wheel:
            _write_launchers(opened, environment)


def _write(script: bytes | None, given: Any, target: Path, environment: Path) -> None:
    """Write a file; a script's first line names the environment's Python."""
    if script is None:
        with target.open("wb") as written:
            shutil.copyfileobj(given, written, COPY_BYTES)
        return
    if script.startswith(b"#!python"):
        script = b"#!" + os.fsencode(environment / "bin" / "python") + b"\n" + script.partition(b"\n")[2]
    target.write_bytes(script)


def _place(name: str, folder: Path, environment: Path) -> Path:
    """Return where a wheel's file goes: `NAME.data` holds what does not go into the folder of packages."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return folder / name
    kind, _, inner = rest.partition("/")
    places = {
        "purelib": folder,
        "platlib": folder,
        "scripts": environment / "bin",
        "headers": environment / "include",
        "data": environment,
    }
    return places[kind] / inner


def _write_launchers(wheel: zipfile.ZipFile, environment: Path) -> None:
    """Write the commands that a wheel declares."""
    name = next((name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")), None)
    if name is None:
        return
    points = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    points.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]  # names of commands keep their case
    points.read_string(wheel.read(name).decode("utf-8"))
    for command, target in points.items("console_scripts") if points.has_section("console_scripts") else ():
        module, _, call = target.partition("[")[0].strip().partition(":")
        path = environment / "bin" / command
        python = environment / "bin" / "python"
        text = _LAUNCHER.format(python=python, module=module, attribute=call.partition(".")[0], call=call)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


def _read_installed(state: Path) -> dict[str, str]:
    path = state / "installed.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _write_installed(state: Path, installed: dict[str, str]) -> None:
    path = state / "installed.json.new"
    path.write_text(json.dumps(installed, indent=1), encoding="utf-8")
    path.replace(state / "installed.json")


if __name__ == "__main__":
    sys.exit(main())
