"""Hyperparameter tuning: the search space, the study, and its report."""
