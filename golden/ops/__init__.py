"""One module a family of ops; each has `build()`, which gives a `Family` of cases."""
