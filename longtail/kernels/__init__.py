"""The few hot loops, in Numba, and one for GPUs in Triton. Tests hold each against a plain second version (tests/naive*.py) or Python's."""
