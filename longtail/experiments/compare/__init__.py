"""Comparison of recipes, baselines, augmentations and seeds: the tables of the papers on any data."""
