"""Label vectors: label ids to vectors, and the scores of texts against them."""
