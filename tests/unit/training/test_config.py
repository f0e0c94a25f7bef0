"""The engine's settings: under `update.*` in a configuration, and all that SFT reads of the update's."""

import sys
from subprocess import run

from kernels_eval.frozen import decisive_part
from tasks.training.config import EngineConfig
from tasks.update.config import UpdateConfig

ENGINE = {"packing": "packed", "head": "chunked", "compile": True, "ranks": 2, "threads_per_rank": 1, "zero_stage": 3}


def test_the_engine_of_an_update_has_its_engine_settings_and_no_others() -> None:
    engine = UpdateConfig(learning_rate=1e-4, kl_coefficient=0.5, advantage="grpo", **ENGINE).engine  # pyright: ignore
    assert type(engine) is EngineConfig
    assert engine == EngineConfig.model_validate(ENGINE)


def test_settings_of_rl_do_not_reach_sft() -> None:
    usual = decisive_part(UpdateConfig().engine)
    assert decisive_part(UpdateConfig(learning_rate=1e-4, save_interval=3, advantage="gae").engine) == usual
    assert decisive_part(UpdateConfig(packing="packed").engine) != usual


def test_settings_of_either_are_read_without_torch() -> None:
    code = "import sys, tasks.update.config, tasks.sft.config; print({'torch', 'ray', 'numpy'} & set(sys.modules))"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"
