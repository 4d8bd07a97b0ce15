"""flopwatch watches the speed and the numbers of GPU kernels, commit by commit, and never cries wolf."""

from flopwatch.suite import Suite

__all__ = ["Suite", "__version__"]

__version__ = "0.1.0"
