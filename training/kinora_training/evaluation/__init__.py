"""Measures of generated clips, and pictures of them."""
