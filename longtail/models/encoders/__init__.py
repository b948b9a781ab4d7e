"""Encoders: token rows to embeddings."""
