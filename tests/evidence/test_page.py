from __future__ import annotations

import pytest
from evidence.page import filled


def test_a_part_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs one place for 'noise'"):
        filled("no markers", {"noise": "text"})
