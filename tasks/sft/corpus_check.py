"""Check of the settings of SFT pairs against the judge's, before a run starts. Imports light."""

from collections.abc import Collection

from kernels_eval.backends import backend_named
from kernels_eval.config import AUTO, JudgeConfig
from kernels_eval.errors import InputError
from tasks.problems.synthetic.languages import language_of
from tasks.sft.config import SftDataConfig


def check_corpus(config: SftDataConfig, judge: JudgeConfig) -> None:
    """Raise InputError if no corpus is generated in the judge's language and the given styles, or the judge cannot find
    any kernel of it right.
    """
    if config.path is None and config.corpus != "modules":
        language_of(judge.backend, config.styles)
    if config.path is None and config.corpus != "compositions" and judge.backend not in ("triton", AUTO):
        raise InputError(
            f"sft.data.corpus: found {config.corpus}, whose kernels are in Triton, with judge.backend = "
            f"{judge.backend}; expected compositions"
        )
    if config.optimizations and (config.path is not None or config.corpus == "compositions"):
        where = f"sft.data.corpus = {config.corpus}" if config.path is None else f"sft.data.path = {config.path}"
        raise InputError(
            f"sft.data.optimizations: found {config.optimizations} of the modules corpus beside {where}, expected 0"
        )
    names = {"judge.device": judge.device}
    if judge.backend != AUTO:  # of several languages, those that a CPU does not run are judged as rollouts are
        names["sft.data.judge.device"] = config.judge.device
    on_cpu = next((name for name, device in names.items() if device == "cpu"), None)
    interprets = judge.backend != AUTO and backend_named(judge.backend).interprets
    if config.verified and on_cpu is not None and not interprets:
        raise InputError(
            f"{on_cpu}: cpu, where kernels of judge.backend = {judge.backend} are built but not run, so that no pair "
            "is known to be right; judge them on a GPU, or set sft.data.verified=false"
        )


def check_left_out(config: SftDataConfig, unseen: Collection[str]) -> None:
    """Raise InputError if `leave_out` names what no module problem has, or nothing is left beside `unseen`."""
    from tasks.problems.modules.corpus import check_operators

    if config.leave_out and (config.corpus == "compositions" or config.path is not None):
        where = f"sft.data.corpus = {config.corpus}" if config.path is None else f"sft.data.path = {config.path}"
        raise InputError(f"sft.data.leave_out: found operators of the modules corpus beside {where}, expected none")
    check_operators(frozenset(unseen) | frozenset(config.leave_out), "sft.data.leave_out")
