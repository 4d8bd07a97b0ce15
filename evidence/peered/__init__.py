"""The bundled kernels beside their peers, for `evidence.peers`; no folder of suites itself, so that it shadows nothing.

A folder of suites puts the folder above it on the path: that is this one, which has nothing else in it.
"""
