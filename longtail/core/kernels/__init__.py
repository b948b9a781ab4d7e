"""Hot loops in Numba, and those for GPUs in gpu/. Tests hold each against a naive second version or Python's own."""
