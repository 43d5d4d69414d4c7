"""A simulated engine: a deterministic response surface and every fault on demand."""
