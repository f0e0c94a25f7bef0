"""A Triton kernel, interpreted or compiled, in a process of its own: `python -m flows.checks.probe interpret | compile TARGET`.

Prints what came of it and exits with 0, or prints the error's line and exits with 1. (The interpreter is chosen by an environment
variable that is read when Triton is imported; and a broken installation may take its process with it.)
"""

import os
import sys


def main(arguments: list[str]) -> int:
    """Run one probe."""
    if arguments[0] == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"
    from flows.checks import probe_kernel

    print(probe_kernel.interpret() if arguments[0] == "interpret" else probe_kernel.compile_for(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
