"""The judge over HTTP: `kernelmill serve-judge`, or `create_app(judge, config)` under any ASGI server.

Modules: `schemas` (what goes over the wire), `app` (routes), `gate` (token, sizes, patience), `admission` (the bounded queue),
`metrics` (Prometheus text), `serving` (a process that serves until it is told to stop).
"""
