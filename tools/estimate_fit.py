"""Fit the constants of the estimate to measured kernels, and tell how far it is off on other kernels.

    python tools/estimate_fit.py --features features.jsonl --measured measurements.json [--fit] [--plot FILE]
        [--hardware h200]

Half of the kernels, by a digest of their names and with all their sizes, are held out. `--fit` searches the constants
of `Hardware` by coordinates, with the mean absolute logarithm of estimated over measured time as the loss, and prints
them. Prints quantiles of that ratio, by family too, and rank correlations; `--plot` draws the held-out half. Times of
an H200 need `--hardware h200`: its own memory, and the H100's constants. Needs scipy and matplotlib.
"""

import argparse
import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from kernels_eval.cost.hardware import HARDWARE, Hardware  # noqa: E402
from kernels_eval.cost.launch import Launch  # noqa: E402
from kernels_eval.cost.occupancy import Usage  # noqa: E402
from kernels_eval.cost.roofline import total_s  # noqa: E402

FITTED = (
    "call_s", "launch_s", "program_s", "access_s", "reduction_s", "memory_share", "integer_share", "spill_factor",
    "cache_bytes", "reuse_bytes", "busy_warps", "overlap",
)  # fmt: skip
"""Constants of `Hardware` that are fitted. Rates of units and of memory are those of data sheets: fitted freely, they
take values that no unit has, and are no better on held-out kernels."""

_H100 = HARDWARE["h100"]
MEASURED_ON = {
    "h100": _H100,
    # NVIDIA H200 data sheet: 4.8 TB/s; the same chip, with 60 MB of L2 in use instead of 50.
    "h200": dataclasses.replace(_H100, name="h200", dram_bytes_per_s=4.8e12, cache_bytes=1.2 * _H100.cache_bytes),
}


@dataclass(frozen=True)
class Row:
    """A kernel at one size, with what was measured."""

    name: str
    family: str
    kernel: str
    launches: list[Launch]
    usages: list[Usage | None]
    eager: list[Launch]
    candidate_s: float
    reference_s: float

    @property
    def is_held_out(self) -> bool:
        """True for half of the kernels."""
        return hashlib.sha256(self.kernel.encode()).digest()[0] % 2 == 1


def read_rows(features: Path, measured: Path) -> list[Row]:
    """Return the cases that were judged correct here and agreed with the reference there."""
    times = json.loads(measured.read_text())["measured"]
    rows: list[Row] = []
    for line in features.read_text().splitlines():
        case = json.loads(line)
        time = times.get(case["name"])
        if case["status"] != "correct" or time is None or not time["agrees"]:
            continue
        rows.append(
            Row(
                name=case["name"],
                family=case["family"],
                kernel=case["kernel"],
                launches=[Launch(**launch) for launch in case["launches"]],
                usages=[None if use is None else Usage(**use) for use in case["usages"]],
                eager=[Launch(**launch) for launch in case["eager"]],
                candidate_s=1e-3 * time["candidate_ms"],
                reference_s=1e-3 * time["reference_ms"],
            )
        )
    return rows


def estimated(rows: Sequence[Row], hardware: Hardware) -> tuple[Any, Any]:
    """Return the estimated seconds of kernels and of references."""
    candidates = [total_s(row.launches, hardware, row.usages) for row in rows]
    return np.array(candidates), np.array([total_s(row.eager, hardware) for row in rows])


def loss(rows: Sequence[Row], hardware: Hardware) -> float:
    """Return the mean absolute logarithm of estimated over measured, of kernels, references and speed-ups alike."""
    candidates, references = estimated(rows, hardware)
    first = np.log(candidates / np.array([row.candidate_s for row in rows]))
    second = np.log(references / np.array([row.reference_s for row in rows]))
    weights = _weights(rows)
    return float(np.sum(weights * (np.abs(first) + 0.5 * np.abs(second) + np.abs(second - first))) / np.sum(weights))


def _weights(rows: Sequence[Row]) -> Any:
    """Return weights that give each family its square root's share."""
    sizes = {family: sum(row.family == family for row in rows) for family in {row.family for row in rows}}
    return np.array([1 / math.sqrt(sizes[row.family]) for row in rows])


def fit(rows: Sequence[Row], hardware: Hardware, say: Callable[[str], None]) -> Hardware:
    """Search the constants one after the other, in steps that shrink."""
    best = loss(rows, hardware)
    for step in (2.0, 1.4, 1.2, 1.08, 1.03):
        for _ in range(3):
            before = best
            for name in FITTED:
                for factor in (step, 1 / step):
                    changed = dataclasses.replace(hardware, **{name: getattr(hardware, name) * factor})
                    found = loss(rows, changed)
                    if found < best - 1e-6:
                        best, hardware = found, changed
                        break
            if before - best < 1e-4:
                break
        say(f"step {step}: loss {best:.4f}")
    return hardware


def report(rows: Sequence[Row], hardware: Hardware, title: str) -> None:
    """Print quantiles of estimated over measured, and rank correlations."""
    from scipy.stats import spearmanr

    candidates, references = estimated(rows, hardware)
    measured = np.array([row.candidate_s for row in rows])
    baseline = np.array([row.reference_s for row in rows])
    time, eager = candidates / measured, references / baseline
    speedup = (references / candidates) / (baseline / measured)
    print(f"\n{title}: {len(rows)} cases of {len({row.kernel for row in rows})} kernels")
    print("| estimated over measured | 5 % | 25 % | 50 % | 75 % | 95 % | within 1.5 times |")
    print("|---|---|---|---|---|---|---|")
    for name, ratio in (("time of the kernel", time), ("time of eager PyTorch", eager), ("speed-up", speedup)):
        quantiles = " | ".join(f"{value:.2f}" for value in np.quantile(ratio, (0.05, 0.25, 0.5, 0.75, 0.95)))
        print(f"| {name} | {quantiles} | {np.mean(np.abs(np.log(ratio)) < math.log(1.5)):.0%} |")
    of_times: Any = spearmanr(candidates, measured)
    of_speedups: Any = spearmanr(references / candidates, baseline / measured)
    print(f"rank correlation: time {of_times.statistic:.3f}, speed-up {of_speedups.statistic:.3f}")
    for family in sorted({row.family for row in rows}):
        mine = np.array([row.family == family for row in rows])
        found = " | ".join(f"{value:.2f}" for value in np.quantile(time[mine], (0.05, 0.5, 0.95)))
        faster = " | ".join(f"{value:.2f}" for value in np.quantile(speedup[mine], (0.05, 0.5, 0.95)))
        print(f"  {family:12s} {mine.sum():4d} cases, time {found}, speed-up {faster}")


def worst(rows: Sequence[Row], hardware: Hardware, count: int) -> None:
    """Print the cases that the estimate misses by most."""
    candidates, references = estimated(rows, hardware)
    errors = [
        (math.log(candidate / row.candidate_s), math.log(reference / row.reference_s), row)
        for candidate, reference, row in zip(candidates, references, rows, strict=True)
    ]
    for mine, eager, row in sorted(errors, key=lambda item: -abs(item[0]))[:count]:
        print(f"  {math.exp(mine):6.2f} (eager {math.exp(eager):5.2f}) {1e6 * row.candidate_s:9.1f} us {row.name}")


def plot(rows: Sequence[Row], hardware: Hardware, path: Path) -> None:
    """Draw estimated against measured speed-ups."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.hashsalt": "estimates", "font.size": 9})
    candidates, references = estimated(rows, hardware)
    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 4.5))
    families = sorted({row.family for row in rows})
    for axis, title, mine, true in (
        (axes[0], "time, µs", 1e6 * candidates, np.array([1e6 * row.candidate_s for row in rows])),
        (axes[1], "speed-up", references / candidates, np.array([row.reference_s / row.candidate_s for row in rows])),
    ):
        for number, family in enumerate(families):
            chosen = [index for index, row in enumerate(rows) if row.family == family]
            axis.scatter(true[chosen], mine[chosen], s=9, alpha=0.7, label=family, color=f"C{number % 10}",
                         marker="o" if number < 10 else "x")  # fmt: skip
        ends = [min(mine.min(), true.min()), max(mine.max(), true.max())]
        axis.plot(ends, ends, color="0.6", linewidth=0.8)
        axis.set(xscale="log", yscale="log", xlabel=f"measured {title}", ylabel=f"estimated {title}")
    axes[1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Fit, report, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--measured", type=Path, required=True)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--hardware", choices=sorted(MEASURED_ON), default="h100")
    options = parser.parse_args()
    rows = read_rows(options.features, options.measured)
    hardware = MEASURED_ON[options.hardware]
    if options.fit:
        hardware = fit([row for row in rows if not row.is_held_out], hardware, print)
        _print_constants(hardware)
    held_out = [row for row in rows if row.is_held_out]
    report([row for row in rows if not row.is_held_out], hardware, "fitted to")
    report(held_out, hardware, "held out")
    if options.worst:
        worst(rows, hardware, options.worst)
    if options.plot:
        plot(held_out, hardware, options.plot)


def _print_constants(hardware: Hardware) -> None:
    print(", ".join(f"{name} {getattr(hardware, name):.4g}" for name in FITTED))


if __name__ == "__main__":
    main()
