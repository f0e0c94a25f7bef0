"""Rooms beside the loop, none of them a stage: adapters, conversion, kernels on demand, packaging, tester, airgap."""
