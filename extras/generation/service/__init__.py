"""Kernels on demand over HTTP: `POST /v1/kernels`. `kernelmill serve kernels` starts it.

`jobs` stores jobs and their progress on disk, `runner` works on them, `app` has the routes, `serving` the process.
"""
