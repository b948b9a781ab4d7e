"""REPORT: kept cells -> one HTML page that needs nothing beside itself, with pictures."""
