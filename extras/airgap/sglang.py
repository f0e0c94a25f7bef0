"""SGLang for a bundle: the packages that its server imports, in an archive of their own that only the server sees.

SGLang pins other versions of packages than kernelmill and the host have (Transformers, tokenizers, pydantic), so that
they never share a folder. Its own requirements name PyTorch and much that a server for text does not import; with
`PACKAGES` a server of this version has run beside PyTorch 2.11 for CUDA 13.
"""

import hashlib
import shutil
import tarfile
import zipfile
from pathlib import Path

from extras.airgap import pip
from extras.airgap.request import Request
from extras.airgap.wheels import Say

ARCHIVE = "sglang.tar.xz"
PACKAGES = {
    "sglang": "0.5.13",
    "sglang-kernel": "0.4.3",
    "flashinfer_python": "0.6.12",
    "apache-tvm-ffi": "0.1.9",
    "torchao": "0.17.0",
    "torch_memory_saver": "0.0.10",
    "kernels": "0.14.1",
    "kernels-data": "0.16.2",
    "compressed-tensors": "0.20.0",
    "transformers": "5.8.1",
    "tokenizers": "0.22.2",
    "fastapi": "0.165.0",
    "starlette": "1.10.0",
    "uvicorn": "0.54.0",
    "pydantic": "2.14.3",
    "pydantic-core": "2.50.4",
    "annotated-types": "0.8.0",
    "typing-inspection": "0.4.5",
    "typing-extensions": "4.16.0",
    "opentelemetry-api": "1.45.2",
    "python-multipart": "0.0.34",
    "openai": "2.6.1",
    "jiter": "0.19.0",
    "distro": "1.9.0",
    "sniffio": "1.3.1",
    "pyzmq": "27.3.0",
    "orjson": "3.13.0",
    "msgspec": "0.22.0",
    "setproctitle": "1.3.8",
    "pybase64": "1.5.1",
    "partial_json_parser": "0.2.1.1.post7",
    "interegular": "0.3.3",
    "gguf": "0.19.0",
    "watchfiles": "1.3.0",
    "dill": "0.4.1",
    "loguru": "0.7.3",
    "tomlkit": "0.15.2",
    "jsonschema": "4.26.0",
    "jsonschema-specifications": "2025.9.1",
    "referencing": "0.37.0",
    "rpds-py": "2026.9.1",
    "soundfile": "0.13.1",
    "cffi": "2.1.1",
    "pycparser": "3.12",
}
_LEFT_OUT = {
    "sgl_kernel": ("sm100/", "flash_ops.abi3.so", "flashmla_ops.abi3.so"),
    "sglang_kernel": ("include/", "lib/", "lib64/", "triton_kernels/", "_mscclpp", "test/", "tools/"),
}
"""By folder of packages, and by the wheel's name: machine code for other GPUs than Hopper, and for attention back ends
that are not chosen; headers and tools."""
_NOT_PACKAGES = ("test/", "build_backend.py", "build_utils.py")
_IPYTHON = {
    "IPython/__init__.py": '__version__ = "0"\n',
    "IPython/display.py": "def HTML(*_, **__):\n    return None\n\n\ndef display(*_, **__):\n    return None\n",
}
"""Two names that `sglang.utils` imports, and no server calls."""
_PRESET = 6


def write_archive(request: Request, into: Path, scratch: Path, say: Say) -> None:
    """Write SGLang's packages as one archive into a folder, unless it is there already."""
    archive = into / ARCHIVE
    if archive.is_file() and _made_of(archive) == contents_digest(request.python):
        return
    downloads, site = scratch / "sglang-wheels", scratch / "sglang-site"
    say(f"download: {len(PACKAGES)} wheels of SGLang {PACKAGES['sglang']}")
    downloads.mkdir()
    pip.download(request, [f"{name}=={version}" for name, version in PACKAGES.items()], downloads, scratch)
    for wheel in sorted(downloads.glob("*.whl")):
        unpack(wheel, site)
    for name, text in _IPYTHON.items():
        path = site / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    say("packing SGLang")
    (site / f"{contents_digest(request.python)}.contents").touch()
    with tarfile.open(archive, "w:xz", preset=_PRESET) as packed:
        # The mark of the contents first: it is read without unpacking the rest.
        for path in sorted(site.iterdir(), key=lambda path: (path.suffix != ".contents", path.name)):
            packed.add(path, path.name)
    shutil.rmtree(downloads)
    shutil.rmtree(site)


def contents_digest(python: str) -> str:
    """Return a digest of what the archive is made of."""
    return hashlib.sha256(repr((python, sorted(PACKAGES.items()), _LEFT_OUT)).encode()).hexdigest()[:16]


def _made_of(archive: Path) -> str | None:
    try:
        with tarfile.open(archive, "r:xz") as packed:
            first = packed.next()
    except (tarfile.TarError, OSError, EOFError):
        return None
    return first.name.removesuffix(".contents") if first is not None else None


def unpack(wheel: Path, site: Path) -> None:
    """Unpack a wheel into a folder of packages, without what a server on a Hopper GPU does not load."""
    of_wheel = next((names for start, names in _LEFT_OUT.items() if wheel.name.startswith(f"{start}-")), ())
    with zipfile.ZipFile(wheel) as opened:
        for item in opened.infolist():
            name = _place(item.filename)
            package, _, rest = (name or "").partition("/")
            if (
                name is None
                or item.is_dir()
                or name.startswith((*_NOT_PACKAGES, *of_wheel))
                or rest.startswith(_LEFT_OUT.get(package, ("\0",)))
            ):
                continue
            target = site / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with opened.open(item) as given, target.open("wb") as written:
                shutil.copyfileobj(given, written)


def _place(name: str) -> str | None:
    """Return where a wheel's file lies in a folder of packages; None if it belongs elsewhere."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return name
    kind, _, inner = rest.partition("/")
    return inner if kind in ("purelib", "platlib") else None
