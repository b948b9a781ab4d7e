"""Negatives: which few wrong labels are worth scoring for a text."""
