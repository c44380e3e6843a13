"""One module a command; see :mod:`conceptbind.cli`."""
