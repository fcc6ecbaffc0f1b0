"""Shipped patches: one module per model family, data only."""
