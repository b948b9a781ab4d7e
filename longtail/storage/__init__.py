"""Model folders on disk: saving and opening models and indexes, and export."""
