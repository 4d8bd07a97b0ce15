"""A folder of suites like any other, for `evidence.profile`: the product that the debugging guide's document times."""
