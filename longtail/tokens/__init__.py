"""Texts to tokens: what every encoder reads."""
