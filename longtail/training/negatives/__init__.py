"""SHORTLIST: which few labels are worth scoring for a text."""
