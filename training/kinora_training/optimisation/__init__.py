"""Steps of the optimisers, and checkpoints to resume from."""
