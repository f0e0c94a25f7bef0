"""The judge over HTTP: `kernelmill serve judge`, or `create_app(judge, config)` under any ASGI server.

Modules: `schemas` (requests and replies), `app` (routes), `gate` (token, sizes, time limits, the bounded queue,
refusals), `metrics` (Prometheus text), `serving` (the server process). The server's settings are in
`kernels_eval.config`.
"""
