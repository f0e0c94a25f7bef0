"""Making of a bundle: resolve, build, download, pack into parts, with the installer and its manifest beside them."""

import json
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from extras.airgap import parts, resolution, sglang, wheels
from extras.airgap.request import BUILT, DOWNLOADS, INSTALLER, MANIFEST, SELF_TEST, Request, exact_version, room_for
from extras.airgap.wheels import Say
from kernels_eval.errors import InputError

FORMAT = 1
CONFIGURATIONS = "deployments.zip"
_ROOM = 1_500_000_000
"""Free bytes that a bundle wants at most, with the pieces of its largest wheel."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that was made."""

    folder: Path
    packages: int
    size: int
    parts: int
    glibc: str


def make_bundle(request: Request, say: Say) -> Bundle:
    """Make a bundle, or finish one that was begun: wheels that are there with the right hash are not downloaded."""
    source = source_folder()
    room_for(request.out, _ROOM)
    downloads, built = request.out / DOWNLOADS, request.out / BUILT
    downloads.mkdir(exist_ok=True)
    built.mkdir(exist_ok=True)
    parts.gather(request.out, downloads)
    with tempfile.TemporaryDirectory(prefix="kernelmill-airgap-") as folder:
        scratch = Path(folder)
        say("building kernelmill")
        own = wheels.build_own(source, built, scratch)
        say(f"resolving kernelmill[{resolution.EXTRA}] for Python {request.python}")
        packages = resolution.resolve(request, own, scratch)
        for place, package in enumerate(packages):
            if package.url is None:
                say(f"building {package.name} {package.version}, which has no wheel")
                packages[place] = wheels.build(package, built, request.python)
        wheels.fetch(request, packages, scratch, say)
        if request.sglang:
            sglang.write_archive(request, downloads, scratch, say)
    names = [package.file for package in packages]
    archives = [CONFIGURATIONS, *([sglang.ARCHIVE] if request.sglang else [])]
    write_configurations(source, downloads / CONFIGURATIONS)
    for path in downloads.iterdir():
        if path.name not in (*names, *archives):
            path.unlink()  # of an earlier call with other packages
    sizes = {path.name: path.stat().st_size for path in sorted(downloads.iterdir())}
    packed = parts.pack(sizes, request.part_bytes)
    say(f"packing {len(sizes)} files into {len(packed)} parts")
    files = parts.write_parts(downloads, request.out, packed)
    glibc = wheels.needed_glibc(names)
    manifest = {
        "format": FORMAT,
        "python": request.python,
        "glibc": glibc,
        "host": {package.name: exact_version(package) or "" for package in request.host},
        "packages": {package.name: package.version for package in packages},
        "sglang": sglang.PACKAGES if request.sglang else {},
        "files": files,
    }
    (request.out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for name in (INSTALLER, SELF_TEST):
        shutil.copyfile(Path(__file__).with_name(name), request.out / name)
    shutil.rmtree(downloads)
    shutil.rmtree(built)
    return Bundle(request.out, len(packages), sum(sizes.values()), len(packed), glibc)


def source_folder() -> Path:
    """Return the checkout that this code is in."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / "pyproject.toml").is_file() or not (folder / "deployments").is_dir():
        raise InputError(f"{folder}: no pyproject.toml there, expected a checkout of kernelmill to make its wheel from")
    return folder


def write_configurations(source: Path, target: Path) -> None:
    """Write the deployments' configurations to an archive, the same bytes each time."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((source / "deployments").rglob("*")):
            if path.is_file() and path.suffix in (".yaml", ".json", ".txt"):
                entry = zipfile.ZipInfo(str(path.relative_to(source)))
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
