"""The command line: ``conceptbind COMMAND …``, or ``python -m conceptbind COMMAND …``.

A command is a name in ``COMMANDS`` and a module of that name in ``conceptbind/commands/`` with

- ``add_arguments(parser)``, which adds its arguments to an ``argparse.ArgumentParser``,
- ``run(args) -> int``, which gives the exit status,
- and, if a stopped run can be continued, ``stored_in(args) -> Path``: where what it finished is kept.

Only the module of the command that is asked for is imported. A module that imports torch and the like inside
``run`` keeps its ``--help`` fast too.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

import conceptbind

COMMANDS = {
    "report": "measure how a model binds: numbers, a verdict and a page, for one model or many",
    "complexity": "fit simple functions to an encoder's binding function and judge them on held-out objects",
    "verdict": "say what an encoder's binding function is: a bag, a simple function, a table, or undetermined",
    "results": "count or export the rows of a result store",
    "build": "make one table of many reports, and compare the models",
    "sweep": "train models on a grid of settings, and judge where they bind",
}
"""Name and one-line summary of every command; the module's name has `_` for `-`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give the exit status.

    0 is success, 2 a wrong argument or an input that cannot be used, 130 stopped by Ctrl-C.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    command = args = None
    try:
        command, args = _parse(argv)
        return command.run(args)
    except KeyboardInterrupt:
        message = "stopped"
        if args is not None and hasattr(command, "stored_in"):
            message += (
                f"; what was finished is stored in {command.stored_in(args)}, "
                "the same command goes on from there"
            )
        print(message, file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:  # what our own code raises for a wrong input
        if "--debug" in argv:
            raise
        print(f"conceptbind: error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2


def _parse(argv: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    debug = {"action": "store_true", "help": "show the traceback of an error"}
    parser = argparse.ArgumentParser(prog="conceptbind", description=conceptbind.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"conceptbind {conceptbind.__version__}")
    parser.add_argument("--debug", **debug)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    asked = next((a for a in argv if not a.startswith("-")), None)
    module = None
    for name, summary in COMMANDS.items():
        about = f"{summary[0].upper()}{summary[1:]}."
        own = commands.add_parser(name, help=summary, description=about, allow_abbrev=False)
        own.add_argument("--debug", default=argparse.SUPPRESS, **debug)
        if name == asked:
            module = importlib.import_module(f"conceptbind.commands.{name.replace('-', '_')}")
            module.add_arguments(own)
    args = parser.parse_args(argv)
    assert module is not None, "argparse refuses any other command"
    return module, args
