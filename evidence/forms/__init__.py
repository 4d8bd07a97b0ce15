"""Kernels that no small case of the bundled suites takes, in each form that tables have."""
