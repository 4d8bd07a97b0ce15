"""The command line: one module a verb."""

from flopwatch.cli.entry import build_parser, main

__all__ = ["build_parser", "main"]
