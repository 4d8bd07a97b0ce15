from __future__ import annotations

import importlib.metadata

import pytest

from flopwatch.errors import UnsupportedTritonError
from flopwatch.static.triton_version import check_triton_version, supported


def test_the_installed_triton_is_supported() -> None:
    assert (3, 6) <= check_triton_version() <= (3, 9)


@pytest.mark.parametrize("version", ["3.6.0", "3.9.0", "3.7.1+git12"])
def test_supported_versions_pass(version: str) -> None:
    assert supported(version) == tuple(map(int, version[:3].split(".")))


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "2.1.0", "4.0", "unknown"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(UnsupportedTritonError, match=r">= 3.6, < 3.10"):
        supported(version)


def test_no_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(UnsupportedTritonError, match="not installed"):
        check_triton_version()
