"""Checks of the machine and of a configuration.

`preflight` raises InputError for the first problem before a flow starts anything expensive. `verify` runs the checks of
`kernelmill verify` and returns a result of each (`result`); `machine` and `toolchain` check the machine.
"""
