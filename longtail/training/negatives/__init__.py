"""Sources of hard negatives: labels that are scored beside the right ones of a row, because they are likely to be mistaken for them."""
