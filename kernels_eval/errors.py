"""The root of the exception hierarchy.

A bad kernel is data: it becomes a verdict. An exception says that a person must act (bad input), or that the machine
failed (may heal on retry). Every exception carries one sentence and survives pickling, since it crosses processes.
"""


class KernelmillError(Exception):
    """Something that a person has to mend; one sentence says what was found and what was expected."""


class InputError(KernelmillError):
    """Bad input: a file, a field or a setting. Never retried; the command line exits with 2."""


class InfrastructureError(KernelmillError):
    """The machine failed, not the input: a dead worker, a lost server. Can succeed on retry."""
