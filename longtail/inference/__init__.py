"""Prediction: scorers, ensembles, stacking weights, calibration, explanations, search and new labels."""
