"""The networks, and the same networks with fused layers for fast training."""
