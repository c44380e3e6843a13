"""Measure how an embedding model binds concepts."""

__version__ = "0.1.0"
