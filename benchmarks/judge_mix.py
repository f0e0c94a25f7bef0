"""Kernels for the judge's benchmarks: honest, wrong, not compiling, hanging and hostile ones, for generated problems.

All sources differ: no verdict comes from the cache. The same seed gives the same kernels.
"""

import random
from dataclasses import dataclass
from enum import StrEnum

from tasks.problems.config import ProblemsConfig
from tasks.problems.synthetic.composition import Composition
from tasks.problems.synthetic.sources import FIXED_STYLES, kernel_source
from tasks.problems.synthetic.suite import draw_shape, draw_training_compositions, problem_of


class Kind(StrEnum):
    """Kind of a kernel."""

    HONEST = "honest"
    WRONG = "wrong"
    NOT_COMPILING = "not compiling"
    HANGING = "hanging"
    HOSTILE = "hostile"


SHARES = {Kind.HONEST: 0.6, Kind.WRONG: 0.2, Kind.NOT_COMPILING: 0.18, Kind.HANGING: 0.02}
"""Shares as in training; hostile kernels are for the soak test."""
_HANGING = ("        while True:\n            pass\n", "        import time\n        time.sleep(3600)\n")
_HOSTILE = (
    "        import os\n        os._exit(0)\n",
    "        import os, signal\n        os.kill(os.getpid(), signal.SIGKILL)\n",
    "        import os\n        while True:\n            os.fork()\n",
    "        keep = []\n        while True:\n            keep.append(bytearray(1 << 24))\n",
    "        def deeper(n):\n            return deeper(n + 1)\n        deeper(0)\n",
    "        import faulthandler\n        faulthandler._sigsegv()\n",
    "        import contextlib, os\n        for number in range(3, 256):\n"
    "            with contextlib.suppress(OSError):\n                os.write(number, b'x' * 4096)\n",
    "        import contextlib, os\n        for number in range(256):\n"
    "            with contextlib.suppress(OSError):\n                os.close(number)\n",
    "        import socket\n        socket.create_connection(('127.0.0.1', 18188), timeout=1)\n",
    "        open('/tmp/judge-was-here', 'wb').write(b'x' * (1 << 28))\n",
    "        raise ValueError('\\ud800' * 100000)\n",
    "        import sys, gc\n        raise SystemExit(str(gc.get_objects())[:1 << 20])\n",
    "        import os\n        while True:\n            os.dup(os.open('/dev/null', os.O_RDONLY))\n",
    "        import os\n        while True:\n            os.memfd_create('more')\n            os.pipe()\n",
    "        x = torch.zeros(1 << 40)\n",
    "        import threading\n        while True:\n"
    "            threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\n",
)


@dataclass(frozen=True)
class Sample:
    """A kernel and its problem."""

    kind: Kind
    problem: str
    kernel: str


def mixed_kernels(count: int, seed: int, shares: dict[Kind, float] = SHARES, problems: int = 25) -> list[Sample]:
    """Return `count` samples in random order, with the share of each kind, over `problems` problems."""
    generator = random.Random(f"mix-{seed}")
    compositions = draw_training_compositions(ProblemsConfig(), problems, seed=seed)
    sources = [(one, problem_of(one, draw_shape(one, generator)).source) for one in compositions]
    kinds = [kind for kind, share in shares.items() for _ in range(round(count * share))]
    kinds += [Kind.HONEST] * (count - len(kinds))
    samples: list[Sample] = []
    for index, kind in enumerate(kinds[:count]):
        composition, problem = sources[index % len(sources)]
        samples.append(Sample(kind, problem, f"{_kernel(composition, kind, index, generator)}# {seed}/{index}\n"))
    generator.shuffle(samples)
    return samples


def _kernel(composition: Composition, kind: Kind, index: int, generator: random.Random) -> str:
    style = generator.choice(FIXED_STYLES)
    if kind is Kind.WRONG:
        return kernel_source(composition, style, wrong={generator.choice(composition.names)})
    source = kernel_source(composition, style)
    if kind is Kind.NOT_COMPILING:
        return (
            source.replace("tl.load(", "tl.lode(", 1),
            source.replace("):\n", ")\n", 1),
            source.replace("ModelNew", "Model"),
            source.replace("import triton\n", "import tryton\n", 1),
        )[index % 4]
    if kind in (Kind.HANGING, Kind.HOSTILE):
        lines = _HANGING if kind is Kind.HANGING else _HOSTILE
        head, _, _ = source.partition("        M, ")
        return head + lines[index % len(lines)] + "        return x\n"
    return source
