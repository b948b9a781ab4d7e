"""Label graphs made from training rows: co-occurrence, random walks, PageRank, and their statistics."""
