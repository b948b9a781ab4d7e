"""The few hot loops, in Numba. Each has a plain second version in tests/naive.py that it must equal."""
