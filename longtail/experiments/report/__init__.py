"""Reports: results of a comparison as one HTML page with pictures, which needs no other file."""
