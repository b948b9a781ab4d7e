"""The few hot loops, in Numba. Tests hold each against a plain second version (tests/naive*.py) or Python's own."""
