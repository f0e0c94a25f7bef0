"""Efficiency of a correct kernel, by what was counted without a GPU or measured on one."""

from collections.abc import Iterable, Sequence

from kernels_eval.cost.hardware import Hardware
from kernels_eval.cost.occupancy import register_share
from kernels_eval.inspection.figures import LEAST_SHARE, CallFigures
from kernels_eval.verdict import Efficiency, Profile, Resources


def counted_efficiency(figures: CallFigures, hardware: Hardware) -> Efficiency:
    """Return the efficiency of counted launches; those that take less than a tenth of the call do not count."""
    registers = (launch.registers for launch in figures.launches if launch.share >= LEAST_SHARE)
    memory = 1 / max(figures.moved_share, 1.0)
    return Efficiency(memory=memory, registers=_fewest(registers, hardware.architecture))


def measured_efficiency(profile: Profile, resources: Sequence[Resources]) -> Efficiency:
    """Return the efficiency of a call on a GPU; `resources`: of all kernels, for the GPU's architecture."""
    shares = [_fewest([used.registers], used.architecture) for used in resources]
    return Efficiency(memory=min(profile.roofline_share, 1.0), registers=min(shares, default=1.0))


def _fewest(registers: Iterable[int | None], architecture: str) -> float:
    return min((register_share(each, architecture) for each in registers if each), default=1.0)
