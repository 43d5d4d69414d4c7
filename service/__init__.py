"""The HTTP service, the running generator: what `cputune serve` and `cputune daemon` start."""
