"""The judge as a resources server of NeMo Gym: copy this folder to `resources_servers/kernelmill` beside its others."""

from extras.adapters.nemo_gym import KernelServer

if __name__ == "__main__":
    KernelServer.run_webserver()
