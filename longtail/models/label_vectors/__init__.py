"""CLASSIFY: label ids -> label vectors, and their scores."""
