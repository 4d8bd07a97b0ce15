"""Calls that have tuners compile all that the plain kernels' lists have."""
