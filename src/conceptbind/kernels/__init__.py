"""Batched numerics, on CPU and GPU."""
