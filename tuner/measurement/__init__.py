"""Measuring: a worker process for the engine, rounds on it, and what they say."""
