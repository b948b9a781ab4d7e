"""Data sets: reading and writing files of many formats, checks, filters, generated and built data, label graphs and augmentation."""
