"""SGLang engine: servers over HTTP, weight synchronisation, and the canary that compares servers with the
checkpoint.
"""
