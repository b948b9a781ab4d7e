"""Losses over scored labels, row by row and fused over all labels."""
