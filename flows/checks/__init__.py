"""Checks of the machine and of a configuration: `preflight` before each run, `verify` for `kernelmill verify`."""
