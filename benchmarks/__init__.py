"""The suites of the bundled kernels: ``asv run``, the gate and the dashboard read these declarations."""
