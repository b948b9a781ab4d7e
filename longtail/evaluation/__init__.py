"""Metrics, evaluation against test labels, prediction files, tables of results, and the nearest-text baseline."""
