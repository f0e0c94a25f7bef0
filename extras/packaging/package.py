"""Packages, written with one atomic step and checked file by file.

A package is a folder with

- the policy: `config.json`, weights, tokenizer, chat template, as transformers reads them;
- `kernelmill.yaml`: the run's configuration, less paths and settings of the machine;
- `prompt.txt`: the first request to the policy, with `{source}` in place of the module's source;
- `system.txt`: the system message before it, if the run had one (`rollout.episode.system_message`);
- `README.md`: the model card; `LICENSE`: that of the files that we write;
- `package.json`: `Package`, with the SHA-256 of each of these files;
- `manifest.json`: that of every artifact (tasks.pipeline.store), by which damage is found when the folder is opened.
"""

from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from extras.packaging.inputs import PackageInputs
from extras.packaging.policy_files import copy_policy
from kernels_eval.errors import InputError
from kernels_eval.expectations import refusal
from kernels_eval.frozen import FrozenModel
from tasks.pipeline.digests import DIGEST_CHARACTERS, sha256_of
from tasks.pipeline.integrity import damage_of
from tasks.pipeline.json_file import read_json_object
from tasks.pipeline.store import MANIFEST, publish, read_manifest
from tasks.rollout.prompts import prompt_messages

PACKAGE_FILE = "package.json"
SETTINGS_FILE = "kernelmill.yaml"
CARD_FILE = "README.md"
PROMPT_FILE = "prompt.txt"
SYSTEM_FILE = "system.txt"
LICENSE_FILE = "LICENSE"
_SOURCE = "{source}"
_CHECKOUT = Path(__file__).parents[2]


class Package(FrozenModel):
    """Content of `package.json`."""

    format: Literal[1] = 1
    kernelmill: str
    """Version that wrote the package."""
    run_id: str
    weight_version: int
    """Number of RL iterations behind the weights."""
    digests: dict[str, str]
    """Content digests of the run's artifacts: `policy`, `problems`, `sft_data`, and the evaluations of the card."""
    files: dict[str, str]
    """SHA-256 of every file but this one and the manifest, by path."""


def write_package(inputs: PackageInputs, destination: Path) -> Package:
    """Write a package to a new or empty folder; on an error nothing is left.

    Raises InputError if the folder has content, or a file of the run is damaged or missing.
    """
    from extras.packaging.card import model_card

    destination = destination.resolve()  # a link's target, which can be on another disk, is what a rename replaces
    check_destination(destination)
    *system, prompt = prompt_messages(_SOURCE, (), inputs.rollout.episode, inputs.judge.backend)
    texts = {
        SETTINGS_FILE: yaml.safe_dump(inputs.settings, sort_keys=False),
        PROMPT_FILE: prompt.content,
        CARD_FILE: model_card(inputs, destination.name),
        LICENSE_FILE: _license_text(),
    }
    if system:
        texts[SYSTEM_FILE] = system[0].content
    with publish(destination, {"run_id": inputs.run_id, "weight_version": inputs.version}) as folder:
        files = copy_policy(inputs.policy.path, folder)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
            files[name] = sha256_of(folder / name)
        package = Package(
            kernelmill=version("kernelmill"),
            run_id=inputs.run_id,
            weight_version=inputs.version,
            digests=_digests(inputs),
            files=dict(sorted(files.items())),
        )
        (folder / PACKAGE_FILE).write_text(package.model_dump_json(indent=1) + "\n", encoding="utf-8")
        check_destination(destination)  # copying takes minutes, and content that came meanwhile would be replaced
    return package


def check_destination(destination: Path) -> None:
    """Raise InputError unless the destination does not exist, or is an empty folder."""
    if destination.is_dir() and any(destination.iterdir()):
        raise InputError(f"DESTINATION: {destination}: has content; expected a new or an empty folder")
    if destination.exists() and not destination.is_dir():
        raise InputError(f"DESTINATION: {destination}: expected the path of a folder, found a file")


def check_package(folder: Path) -> Package:
    """Return what a package says of itself. Raises InputError, with the file's name, if a file is not as it was
    written, is missing, or was added; hidden ones are not looked at.
    """
    damage = damage_of(folder)
    if damage is not None:
        raise InputError(damage)
    package = read_package(folder)
    listed: dict[str, str] = (read_manifest(folder) or {})["files"]
    for name, digest in package.files.items():
        if listed.get(name) != digest[:DIGEST_CHARACTERS]:
            raise InputError(f"{folder / name}: {PACKAGE_FILE} and {MANIFEST} have different digests of it")
    present = {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()}
    known = {Path(name) for name in (*listed, MANIFEST)}
    added = sorted(path for path in present - known if not any(part.startswith(".") for part in path.parts))
    if added:
        raise InputError(f"{folder / added[0]}: is no part of the package: {PACKAGE_FILE} does not name it")
    return package


def read_package(folder: Path) -> Package:
    """Return the content of a folder's `package.json`. Raises InputError if the folder is no package."""
    if settings_in(folder) is None:
        raise InputError(f"{folder}: expected a package, with {PACKAGE_FILE} and {SETTINGS_FILE}; found none")
    if read_manifest(folder) is None:
        raise InputError(f"{folder / MANIFEST}: missing; without it the files of the package cannot be checked")
    try:
        return Package.model_validate(read_json_object(folder / PACKAGE_FILE))
    except ValidationError as error:
        raise InputError(f"{folder / PACKAGE_FILE}: not that of a package: {refusal(error)}") from error


def settings_in(folder: Path) -> Path | None:
    """Return the configuration in a package, which may be damaged; None if the folder is no package."""
    settings = folder / SETTINGS_FILE
    return settings if settings.is_file() and (folder / PACKAGE_FILE).is_file() else None


def _digests(inputs: PackageInputs) -> dict[str, str]:
    named = {"policy": inputs.policy, "problems": inputs.problems, "sft_data": inputs.sft_data}
    digests = {name: reference.digest for name, reference in named.items() if reference is not None}
    return digests | {f"evaluation {name}": reference.digest for name, reference in inputs.evaluations.items()}


def _license_text() -> str:
    """Return the licence of this project, from the installed distribution or the checkout."""
    try:
        text = distribution("kernelmill").read_text("licenses/LICENSE")
    except PackageNotFoundError:
        text = None
    return text or (_CHECKOUT / "LICENSE").read_text(encoding="utf-8")
