"""COMPARE: recipes, peers, augmentations, seeds -> the tables of the papers on any data."""
