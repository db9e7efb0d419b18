"""The trained model as a diffusers folder, with its model card."""
