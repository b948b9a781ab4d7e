"""The few hot loops, in Numba; in gpu/ those for GPUs. Tests hold each against a plain second version (tests/naive*.py) or Python's."""
