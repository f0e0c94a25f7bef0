"""The bundled suite: operators, their compositions, and kernels for them in several styles, all from a seed."""
