"""Why a case got slower, by what the compiler made of its kernels; and what it had of them at each level.

Reports rank causes by `flopwatch.explain.ranking`, where there is nothing but Python: nothing is imported here.
"""
