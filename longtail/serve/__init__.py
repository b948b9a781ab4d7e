"""SERVE: a model folder behind HTTP, with a page to try it."""
