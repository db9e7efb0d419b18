"""The two stages of the training: the autoencoder, then the UNet with the image encoder."""
