"""Experiments: comparisons with other systems, reports, and hyperparameter tuning."""
