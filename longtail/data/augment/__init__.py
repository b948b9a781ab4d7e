"""AUGMENT: training rows + LabelGraph -> more training rows."""
