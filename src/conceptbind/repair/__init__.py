"""Repair what an image-text model does not bind: maps and adapters of texts, a regulariser, composition models."""
