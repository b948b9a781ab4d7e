"""Augmentation of training rows with label texts and label graphs, and the choice of one by validation."""
