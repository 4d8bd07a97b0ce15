"""Sphinx configuration; ``nox -s docs`` builds."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# Read from the checkout: the pages need none of what flopwatch is installed for.
sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from flopwatch import __version__
from flopwatch.cli import build_parser
from flopwatch.cli.manual import manual
from flopwatch.static.catalogue import catalogue

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "flopwatch"
author = "The flopwatch maintainers"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 3

# Gigabytes that the signatures only name.
autodoc_mock_imports = ["torch", "triton"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

nitpicky = True
# Types of other projects, and of the standard library: their pages are not read at build time.
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|triton|collections|typing|enum|pathlib|types)\..*"),
    (r"py:class", r"(Callable|Mapping|Sequence|Iterator|Any|Path)"),
]

html_theme = "furo"
html_title = "flopwatch"


def keep_magnitudes(_app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    """Escape the bars of |x|, which a docstring means as a magnitude and reStructuredText as a substitution."""
    lines[:] = [re.sub(r"\|(\w+)\|", r"\\|\1\\|", line) for line in lines]


def write_pages(app: Sphinx) -> None:
    """Write the pages that are made of code; they are kept in the repository, too, where other pages link to them."""
    for name, text in (("commands.md", manual(build_parser())), ("devices.md", catalogue())):
        path = Path(app.srcdir) / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect to Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", keep_magnitudes)
