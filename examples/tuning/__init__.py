"""Two ways to choose a launch's configuration, on the same kernels: rules of heuristics, and an autotuner."""
