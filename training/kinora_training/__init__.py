"""The training of the model in the box: `README.md` beside this package describes the commands and the recipe."""
