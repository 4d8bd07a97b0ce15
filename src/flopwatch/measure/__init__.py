"""Measuring: a worker process a side, its timers, and pairs of workers that take turns on one GPU."""
