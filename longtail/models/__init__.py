"""Networks: encoders, label vectors, losses, and how they are put together."""
