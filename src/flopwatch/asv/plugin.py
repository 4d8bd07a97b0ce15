"""The plugin that asv.conf.json names: ``"plugins": [".flopwatch.asv.plugin"]`` (asv wants the leading dot)."""

from __future__ import annotations

from flopwatch.errors import UsageError


def setup() -> None:
    """Register the shared environment, the machine's extra fields, and what `asv publish` does more; asv calls this.

    Raises:
        UsageError: asv is not installed.
    """
    try:
        # asv finds environments and publishers among the subclasses of its own, so importing them registers them.
        from flopwatch.asv import anchored, environment, machine, publish, publisher  # noqa: F401, PLC0415 - asv may be missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("asv", "asv_runner"):
            raise
        raise UsageError(
            "the history needs asv",
            why=f"no module named {error.name!r} in this interpreter",
            todo="python -m pip install 'flopwatch[history]'",
        ) from None
    machine.extend_machine()
    anchored.extend_benchmarks()
    publish.extend_publish()
