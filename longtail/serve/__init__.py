"""A model folder served over HTTP, with a page to try it."""
