"""Token rows to vectors."""
