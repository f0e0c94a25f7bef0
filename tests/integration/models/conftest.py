"""Published chat templates, downloaded once for all tests of them."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]  # published; downloaded, imported


@pytest.fixture(scope="session")
def package_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`package_folder(name)`: where a package of `published.PACKAGES` lies unpacked; skips the test if it cannot be had."""
    from downloaded import fetch
    from published import PACKAGES, SOURCES

    folders: dict[str, Path | None] = {}

    def find(name: str) -> Path:
        if name not in folders:
            folder = tmp_path_factory.mktemp(name)
            fetched = fetch(f"{name}=={PACKAGES[name]}", folder, source=name in SOURCES)
            folders[name] = folder if fetched else None
        found = folders[name]
        if found is None:
            pytest.skip(f"no package index within reach has {name} {PACKAGES[name]}")
        return found

    return find
