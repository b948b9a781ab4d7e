"""SEARCH: vectors of texts -> the best labels by the product of vectors, exactly or by an index, behind one interface."""
