"""The input of an invented run's newest package."""

from pathlib import Path

import pytest

from extras.packaging.inputs import PackageInputs
from flows.run.packaging import package_inputs


@pytest.fixture
def inputs(run_folder: Path) -> PackageInputs:
    return package_inputs(str(run_folder))
