"""GPUs of a worker's process: those that Ray reserved for it. It may see others, which its children need."""


def has_gpu() -> bool:
    """True if this process may compute on a GPU: in a Ray actor, if Ray reserved one for it; else, if there is one."""
    import ray
    import torch

    if not torch.cuda.is_available():
        return False
    in_actor = ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
    return not in_actor or bool(ray.get_gpu_ids())
