"""Links in the folder of a run."""

from pathlib import Path

import pytest

from flows.run.run import link_to
from kernels_eval.errors import InputError


def test_a_link_replaces_a_link_or_a_file_and_no_folder(tmp_path: Path) -> None:
    link = tmp_path / "runs" / "latest"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        link_to(link, tmp_path / name)
        assert link.resolve() == tmp_path / name
    link.unlink()
    link.write_text("of somebody else")
    link_to(link, tmp_path / "a")
    link.unlink()
    (link / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match="latest: expected a link, or nothing, found a folder"):
        link_to(link, tmp_path / "a")
    assert [path.name for path in link.parent.iterdir()] == ["latest"]
    assert (link / "mine").is_dir()
