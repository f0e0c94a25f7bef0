"""GPUs that train together: the update's engine on several ranks over NCCL, against one rank. Run as a script; no Ray.

    python tools/gpu/ranks_on_gpus.py --gpus 0,1,2,3 --out FILE.json [--ranks 1,4,2] [--folder KEPT] [--tiny-cpu]

For each layout of LAYOUTS, with as many of the GPUs as it has ranks:
- exact: one step of the 0.6B shape in float32 without TF32; loss, norm and three weights' gradients against one rank's
- resharded: weights and optimizer's state that four ranks wrote, read by so many ranks, and one more step
- speed: tokens/s, share of the peak and memory of a rank in bfloat16, of each shape; the link's all-reduce beside it

What is known is written after each number of ranks. A call with `--ranks 2` can follow one with `--ranks 1,4`, on the
same folder. `--tiny-cpu`: tiny shapes over gloo, to try the script.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LAYOUTS = ((1, 1, 1), (4, 1, 3), (4, 1, 1), (4, 4, 3), (2, 1, 1), (2, 2, 3))
"""Ranks, ranks that share a sequence (update.context_parallel), ZeRO stage. The others are compared with the first one;
the second one writes the state that the others read."""
LIMIT_S = 240.0
PROBES = ("embed_tokens.weight", "layers.0.self_attn.q_proj.weight", "norm.weight")
"""Ends of the names of the weights whose gradients are compared."""


def main() -> None:
    """Run all layouts, or one rank of one of them."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--gpus", default="0,1,2,3")
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--shapes", default="0.6B,8B", help="shapes whose speed is measured")
    arguments.add_argument("--parts", default="exact,resharded,speed")
    arguments.add_argument("--ranks", default="1,4,2", help="in this order; one and four come before others")
    arguments.add_argument("--folder", type=Path, help="keeps what layouts are compared with, and the logs")
    arguments.add_argument("--budget", type=float, default=600.0, help="seconds for all; later layouts are left out")
    arguments.add_argument("--tiny-cpu", action="store_true")
    arguments.add_argument("--rank", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.rank:
        sys.path[:0] = [str(REPOSITORY), str(Path(__file__).parent)]
        import ranks_parts

        ranks_parts.run(**json.loads(given.rank))
        return
    gpus = given.gpus.split(",")
    began = time.monotonic()
    found: dict[str, Any] = {"command": " ".join(sys.argv), "layouts": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for world in map(int, given.ranks.split(",")):
            left = given.budget - (time.monotonic() - began)
            found["layouts"] += run_world(world, gpus[:world], given, folder, min(LIMIT_S, left))
            given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found, indent=1), flush=True)
    if any("error" in one for one in found["layouts"]):
        sys.exit(1)


def run_world(
    world: int, gpus: list[str], given: argparse.Namespace, folder: Path, limit: float
) -> list[dict[str, Any]]:
    """Run every layout of so many ranks in one process group; return what rank 0 said."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    layouts = [layout for layout in LAYOUTS if layout[0] == world]
    job = {
        "layouts": layouts,
        "shapes": given.shapes.split(","),
        "parts": given.parts.split(","),
        "folder": str(folder),
        "tiny": given.tiny_cpu,
    }
    processes = []
    for rank in range(world):
        environment = os.environ | {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "CUDA_VISIBLE_DEVICES": "" if given.tiny_cpu else gpus[rank],
            "OMP_NUM_THREADS": "4",
        }
        log = (folder / f"world-{world}-rank-{rank}.log").open("w", encoding="utf-8")
        command = [sys.executable, __file__, "--out", str(given.out), "--rank", json.dumps(job)]
        processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
    end = time.monotonic() + limit
    while any(one.poll() is None for one in processes) and time.monotonic() < end:
        if any(one.poll() not in (None, 0) for one in processes):
            time.sleep(2)  # the others' logs end with the same cause
            break
        time.sleep(0.2)
    for one in processes:
        one.kill()
        one.wait()
    lines = (folder / f"world-{world}-rank-0.log").read_text(encoding="utf-8").splitlines()
    said = [json.loads(line.removeprefix("RESULT ")) for line in lines if line.startswith("RESULT ")]
    if any(one.returncode != 0 for one in processes):
        said.append({"ranks": world, "error": "\n".join(lines[-30:])})
    print("\n".join(json.dumps(one) for one in said), flush=True)
    return said


if __name__ == "__main__":
    main()
