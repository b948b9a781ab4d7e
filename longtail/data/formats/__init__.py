"""File formats of data sets: each recognises its files, reads them, and where it can, writes them."""
