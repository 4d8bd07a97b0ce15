"""What the host's part of flopwatch costs: benchmarks of pytest-benchmark, each in units of a calibration loop."""
