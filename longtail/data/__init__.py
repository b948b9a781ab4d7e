"""READ: files -> Dataset."""
