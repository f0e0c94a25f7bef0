"""`kernelmill verify`: is this machine, and what a configuration names, ready for a run; and what to do where it is not.

`finding` says what a check returns; `machine`, `toolchain`, `services` and `inputs` hold the checks; `examination` runs them side by
side. The flows' pre-flight (flows.checks.preflight) runs those of `inputs` that take no time.
"""
