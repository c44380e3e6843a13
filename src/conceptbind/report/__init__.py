"""The diagnostic: how an encoder binds concepts, as numbers, a verdict and a page. ``binding_report`` makes it."""
