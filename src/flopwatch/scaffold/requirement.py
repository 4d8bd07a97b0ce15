"""What another repository asks pip for, to have the flopwatch that wrote its files."""

from __future__ import annotations

import importlib.metadata
import json

_NAME = "flopwatch"
#: As pyproject.toml has it.
SOURCE = "https://github.com/flopwatch/flopwatch"


def requirement(extra: str = "", *, distribution: importlib.metadata.Distribution | None = None) -> str:
    """Return a requirement of this flopwatch.

    A name alone is whatever an index has under it by then. So what was installed from a repository is asked for there,
    at its commit, and what an index had by its version; PEP 610 (`direct_url.json`) tells which it was. What was
    installed from a folder, or runs in one without being installed, is asked for in the project's own repository, as it
    is by then.

    Args:
        extra: that is wanted.
        distribution: what is installed; flopwatch, if none is given.

    Returns:
        As PEP 508 writes it: a version, or a URL behind an @.
    """
    name = f"{_NAME}[{extra}]" if extra else _NAME
    distribution = distribution or next(iter(importlib.metadata.distributions(name=_NAME)), None)
    if distribution is None:
        return f"{name} @ git+{SOURCE}"
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin:
        return f"{name}=={distribution.version}"
    if "vcs_info" in origin:
        return f"{name} @ {origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
    return f"{name} @ git+{SOURCE}"
