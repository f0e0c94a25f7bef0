"""Serve our problems and the judge as an OpenEnv environment: python docs/examples/openenv_server.py [--port 8000]

Any OpenEnv client reaches it: `extras.adapters.openenv.KernelClient`, or OpenEnv's own GenericEnvClient. It listens on
this machine alone unless --host says otherwise; OpenEnv's server asks for no token.
"""

import argparse

import uvicorn

from extras.adapters.openenv import kernel_app
from extras.adapters.scoring import KernelSettings
from kernels_eval.config import JudgeConfig
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import EpisodeConfig

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--judge-url", help="address of a judge server; without it the judge runs in this process")
parser.add_argument("--workers", type=int, default=2, help="kernels judged at once")
parser.add_argument("--train", type=int, default=200, help="generated problems to train on")
parser.add_argument("--heldout", type=int, default=32)
parser.add_argument("--prompt", choices=["source", "instruct"], default="instruct")
parser.add_argument("--turns", type=int, default=3, help="most answers of one episode")

if __name__ == "__main__":
    given = parser.parse_args()
    settings = KernelSettings(
        judge_url=given.judge_url,
        judge=JudgeConfig(workers=given.workers),
        episode=EpisodeConfig(prompt=given.prompt, max_turns=given.turns),
    )
    app = kernel_app(ProblemsConfig(train=given.train, heldout=given.heldout), settings)
    uvicorn.run(app, host=given.host, port=given.port)
