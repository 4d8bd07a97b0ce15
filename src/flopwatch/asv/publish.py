"""`asv publish`, made to replace the pages at once, and to look at a series again only when it has changed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from asv.commands import publish

from flopwatch.asv.graphs import ArrayGraphs
from flopwatch.asv.machine import working_tree
from flopwatch.asv.swap import replaced

#: Under the working tree.
CACHE = Path(".flopwatch", "changes.json")


def extend_publish() -> None:
    """Make asv build the pages beside the old ones, from our graphs."""
    original = publish.Publish.run.__func__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def run(cls: type[Any], conf: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - asv's signature
        asked, graph_set = conf.html_dir, publish.GraphSet
        # asv gives its graphs no configuration, and takes their class from this module.
        publish.GraphSet = functools.partial(ArrayGraphs, working_tree(conf) / CACHE)
        try:
            with replaced(Path(asked)) as folder:
                conf.html_dir = str(folder)
                return original(cls, conf, *args, **options)
        finally:
            conf.html_dir, publish.GraphSet = asked, graph_set

    publish.Publish.run = classmethod(run)
