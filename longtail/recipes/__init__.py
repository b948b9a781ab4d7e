"""Recipes: one TOML file a system, and how it is read."""
