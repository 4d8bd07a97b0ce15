"""What the workflows run: on hosted machines from the main branch, and, installed, on the machine with the GPU.

Standard library only, on Python 3.11 or later: nothing is installed beside a token, or on the GPU's host.
"""
