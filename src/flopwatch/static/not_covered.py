"""What the interpreter cannot do: a case that needs it is listed as not covered, never as passed."""

from __future__ import annotations


class NotCovered(Exception):  # noqa: N818 - a limit of the interpreter, not an error of the kernel's
    """A kernel uses a feature of Triton that its interpreter does not have, or gets wrong."""

    def __init__(self, feature: str) -> None:
        super().__init__(feature)
        self.feature = feature
