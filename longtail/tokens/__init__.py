"""Tokenizers: texts to weighted token ids, which every encoder takes."""
