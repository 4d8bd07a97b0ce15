"""Kernels with a fault planted in each: a folder of suites like any other, for `evidence.sanitizers`."""
