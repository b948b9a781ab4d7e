"""Sources of hard negatives: labels that are scored along with the right ones, as they are likely to be mistaken for them."""
