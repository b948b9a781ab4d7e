"""Search for the labels with the largest products with a text's vector, exact or by an index, behind one interface."""
