"""Settings for one kernel alone: which of the judge's settings a caller may change, and within which bounds."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError

CHANGEABLE = (
    "backend",
    "targets",
    "compile",
    "timeout_s",
    "trials",
    "policy",
    "roofline_hardware",
    "baseline",
)
"""What the rest of JudgeConfig says belongs to the machine, and is the same for all kernels."""


def with_settings(config: JudgeConfig, backend: str | None, settings: Mapping[str, Any]) -> JudgeConfig:
    """Return the configuration that one kernel is judged by. InputError: not changeable, or a value that does not fit.

    `timeout_s` can be lowered, never raised: it bounds how long a kernel keeps a worker from others.
    """
    if backend is not None:
        settings = {**settings, "backend": backend}
    if not settings:
        return config
    unknown = sorted(settings.keys() - set(CHANGEABLE))
    if unknown:
        raise InputError(f"settings.{unknown[0]}: expected one of {', '.join(CHANGEABLE)}")
    try:
        changed = JudgeConfig.model_validate({**config.model_dump(), **settings})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{name}: {first['msg']}, found {first['input']!r}") from error
    if changed.timeout_s > config.timeout_s:
        raise InputError(f"timeout_s: expected at most {config.timeout_s:g}, found {changed.timeout_s:g}")
    return changed
