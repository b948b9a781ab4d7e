"""Other people's systems, run beside longtail's own: each in a virtual environment of its own, so that pins never meet."""
