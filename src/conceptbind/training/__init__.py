"""Models trained from scratch on scenes of concept values (paper, section 2, F7 and F8)."""
