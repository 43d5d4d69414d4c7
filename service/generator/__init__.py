"""The running generator: a worker process around an engine's session, and the requests it serves."""
