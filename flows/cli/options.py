"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIG = Path("deployments/configs/local.yaml")
ConfigArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        help="YAML file with the run's settings, or the name of a shipped one.",
        show_default=str(DEFAULT_CONFIG),
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="CONFIG", help="The same as an option.", show_default=False)
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="A.B=VALUE", help="Override one setting. Repeatable.")
]
RefreshOption = Annotated[
    list[str] | None,
    typer.Option(
        "--refresh",
        metavar="STAGE",
        help="Recompute this stage (`update`, or a single one: `update 3`) and everything that depends on it. "
        "Repeatable.",
    ),
]

BaseUrlOption = Annotated[
    str | None,
    typer.Option(
        "--openai-base-url",
        metavar="URL",
        help="Instead of a policy: a server with OpenAI's chat completions, e.g. http://127.0.0.1:8000/v1. "
        "OPENAI_API_KEY is sent if it is set.",
    ),
]
ModelOption = Annotated[str | None, typer.Option("--model", help="The model's name on that server.")]


def config_path(argument: Path | None, option: Path | None, policy: Path | None = None) -> Path:
    """Return the configuration that was named, as an argument or as an option.

    If none was: that of the policy, if its folder is a package (`kernelmill policy package`), else the default one.
    """
    from kernels_eval.errors import InputError

    if argument is not None and option is not None:
        raise InputError(f"two configurations, {argument} and --config {option}: expected one")
    if argument is None and option is None and policy is not None:
        from extras.packaging.package import settings_in

        return settings_in(policy) or DEFAULT_CONFIG
    return argument or option or DEFAULT_CONFIG
