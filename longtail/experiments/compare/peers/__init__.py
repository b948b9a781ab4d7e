"""Baselines: other people's systems, each run in a virtual environment of its own, so that pins never meet."""
