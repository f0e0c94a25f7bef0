"""Check of the settings of SFT pairs against the judge's, before a run starts. Imports light."""

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
