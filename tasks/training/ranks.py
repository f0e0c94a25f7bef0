"""Data-parallel ranks: warm Ray actors that share a process group and run training programs (tasks.training.program).

An actor keeps its process group and the engine that it last held, and the next iteration starts without loading
anything. If one rank dies or fails, all are stopped: a group with a hole would hang in its next collective.
"""

import importlib
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import ray
from ray.exceptions import RayError

from tasks.cluster.health import results_of, wait_for_any
from tasks.cluster.workers import placed, stop_worker, warm_worker
from tasks.training.config import SMALL_SHARE, EngineConfig
from tasks.training.faults import error_of_rank
from tasks.training.program import Program, RankContext

COLLECTIVE_TIMEOUT = timedelta(minutes=10)


def held_share() -> float:
    """Return the share of its GPU's memory that tensors of this process take; 0 on a CPU."""
    import torch

    if not torch.cuda.is_initialized():
        return 0.0
    return torch.cuda.memory_allocated() / torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory


@ray.remote(num_cpus=0)
class Rank:
    """One data-parallel worker process."""

    def __init__(self) -> None:
        # Before torch is imported: by default OpenMP's threads spin for milliseconds between operations, which on a
        # shared machine costs up to five times the speed. Ten thousand turns cost nothing on an idle one.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
        self._group: str | None = None
        self._context: RankContext | None = None
        self._store: Any = None

    def ping(self) -> bool:
        """Return at once: a sign of life."""
        return True

    def group(self) -> str | None:
        """Return the name of the process group that this rank is in."""
        return self._group

    def prepare(self, gpus: float) -> None:
        """Import what programs need, which takes half a minute on some machines. `gpus` as in `join`."""
        if gpus == 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # read when CUDA is first used; Ray leaves all of them visible
        from tasks.training.deepspeed_config import import_deepspeed

        importlib.import_module("transformers")
        import_deepspeed()

    def listen(self, world_size: int) -> tuple[str, int]:
        """Open the store through which ranks find each other, on rank 0. Returns its address."""
        from torch._C._distributed_c10d import TCPStore

        address = ray.util.get_node_ip_address() if world_size > 1 else "127.0.0.1"
        listening = socket.create_server((address, 0))  # by itself the store would listen on every address
        port = int(listening.getsockname()[1])
        self._store = TCPStore(
            address,
            port,
            world_size,
            is_master=True,
            wait_for_workers=False,
            timeout=COLLECTIVE_TIMEOUT,
            master_listen_fd=listening.detach(),
        )
        return address, port

    def join(self, group: str, rank: int, world_size: int, address: tuple[str, int], threads: int, gpus: float) -> None:
        """Join the process group permanently. `gpus`: those that Ray reserved for this rank; 0: it stays on the CPU."""
        self.prepare(gpus)
        import torch
        from torch import distributed
        from torch._C._distributed_c10d import TCPStore

        on_gpu = torch.cuda.is_available()
        torch.set_num_threads(threads)
        if on_gpu:
            torch.cuda.set_device(0)  # Ray shows each actor its own GPU only
        host, port = address
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
        }
        if host == "127.0.0.1" and sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # otherwise on the machine name's address
        store = self._store or TCPStore(host, port, world_size, timeout=COLLECTIVE_TIMEOUT)
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=world_size, timeout=COLLECTIVE_TIMEOUT
        )
        from tasks.training.deepspeed_config import import_deepspeed

        import_deepspeed().init_distributed(auto_mpi_discovery=False, verbose=False)
        from transformers.utils import logging

        logging.disable_progress_bar()
        self._group = group
        self._context = RankContext(rank, world_size)

    def held_share(self) -> float:
        """Return the share of its GPU's memory that tensors of this process take; 0 on a CPU."""
        return held_share()

    def set_threads(self, threads: int) -> None:
        """Set the number of CPU threads."""
        import torch

        torch.set_num_threads(threads)

    def run(self, program: Program, job: Any) -> Iterator[Any]:
        """Run a program; yield what it yields."""
        assert self._context is not None, "join() comes first"
        yield from program(self._context, job)


def run_on_ranks(config: EngineConfig, program: Program, job: Any) -> Iterator[Any]:
    """Run a program on all ranks, started if necessary; yield what rank 0 yields.

    Raises what the program raised, caused by Ray's error, which shows the rank's traceback; InfrastructureError if
    a rank died, ran out of memory (OutOfMemoryError) or lost the others.
    """
    ranks = _ranks(config)
    job_reference = ray.put(job)
    streams: list[Any] = [rank.run.options(num_returns="streaming").remote(program, job_reference) for rank in ranks]
    pending = list(streams)
    complete = False
    try:
        while pending:
            for stream in wait_for_any(pending):
                try:
                    item = ray.get(next(stream))
                except StopIteration:
                    pending.remove(stream)
                    continue
                if stream is streams[0]:
                    yield item
        complete = True
    except RayError as error:
        raise error_of_rank(error, config.tokens_per_rank) from error
    finally:
        if not complete:
            stop_ranks(config)


def _ranks(config: EngineConfig) -> list[Any]:
    """Return the living ranks of one process group; recreate it if any of them is missing."""
    try:
        ranks = _warm_ranks(config)
        groups = results_of([rank.group.remote() for rank in ranks])
        if groups[0] is not None and len(set(groups)) == 1:
            results_of([rank.set_threads.remote(config.threads_per_rank) for rank in ranks])
            return ranks
        if any(group is not None for group in groups):
            stop_ranks(config)
            ranks = _warm_ranks(config)
        group = secrets.token_hex(4)
        (address,) = results_of([ranks[0].listen.remote(len(ranks))])
        resources = config.threads_per_rank, config.gpus_per_rank
        joined = [rank.join.remote(group, place, len(ranks), address, *resources) for place, rank in enumerate(ranks)]
        results_of(joined)
    except RayError as error:
        stop_ranks(config)
        raise error_of_rank(error, config.tokens_per_rank) from error
    return ranks


def _warm_ranks(config: EngineConfig) -> list[Any]:
    """Return the actors of all ranks, old ones and new ones."""
    return [
        warm_worker(name, Rank, num_gpus=config.gpus_per_rank, **placed("update", number, config.ranks))
        for number, name in enumerate(_names(config))
    ]


def _names(config: EngineConfig) -> list[str]:
    return [f"rank-{number}-of-{config.ranks}-{config.gpus_per_rank:g}" for number in range(config.ranks)]


def stop_ranks(config: EngineConfig) -> None:
    """End the ranks."""
    for name in _names(config):
        stop_worker(name)


def make_room(config: EngineConfig) -> bool:
    """Replace the ranks if what they hold takes more than `SMALL_SHARE` of a GPU; return True if they stay.

    DeepSpeed keeps hold of an engine that its process has dropped, so that the next one might not fit beside it. Small
    ones may stay: a process that is warm starts the next one much faster, by some twenty seconds on a GPU.
    """
    try:
        shares = results_of([rank.held_share.remote() for rank in _warm_ranks(config)])
    except RayError:
        shares = [1.0]
    if max(shares) <= SMALL_SHARE:
        return True
    replace_ranks(config)
    return False


def replace_ranks(config: EngineConfig) -> None:
    """End the ranks, which frees their memory, and start new ones; does not wait for what those import."""
    stop_ranks(config)
    prepare_ranks(config)


def prepare_ranks(config: EngineConfig, gpus_of_others: float = 0.0) -> bool:
    """Start the ranks, if they do not run yet, and have them import what programs need; does not wait for that.

    False, and none is left, where the cluster lacks the GPUs for them beside others that have `gpus_of_others` (who
    waits for GPUs might get them first), or they do not start. Needs a running Ray.
    """
    try:
        if config.ranks * config.gpus_per_rank + gpus_of_others > float(ray.cluster_resources().get("GPU", 0)):
            return False
        for rank in _warm_ranks(config):
            rank.prepare.remote(config.gpus_per_rank)
    except RayError:  # whoever runs a program on them starts others, and tells what goes wrong
        stop_ranks(config)
        return False
    return True
