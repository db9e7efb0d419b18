"""Clips painted from their numbers: what the model learns from."""
