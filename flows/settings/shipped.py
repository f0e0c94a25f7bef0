"""Configurations and DeepSpeed files that come with the package, found from any folder by name.

`local`, `local.yaml` and `deployments/configs/local.yaml` name the same file where no file of that name lies in the
current folder; so do `zero2` and `deployments/deepspeed/zero2.json`.
"""

from pathlib import Path

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
CONFIGS = DEPLOYMENTS / "configs"
DEEPSPEED = DEPLOYMENTS / "deepspeed"


def configuration_file(path: Path) -> Path:
    """Return the path itself if it is a file, else the shipped configuration that it names, else the path itself."""
    return _found(path, CONFIGS, ".yaml")


def deepspeed_file(path: str) -> str:
    """Return the path itself if it is a file, else the shipped DeepSpeed file that it names, else the path itself."""
    return str(_found(Path(path), DEEPSPEED, ".json")) if path else path


def configuration_names() -> list[str]:
    """Return the names of the shipped configurations."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def _found(path: Path, folder: Path, suffix: str) -> Path:
    if path.is_file() or path.parent not in (Path(), Path(DEPLOYMENTS.name, folder.name)):
        return path
    shipped = folder / (path.name if path.suffix == suffix else f"{path.name}{suffix}")
    return shipped if shipped.is_file() else path
