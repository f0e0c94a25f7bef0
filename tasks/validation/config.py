"""Settings of the checks between stages."""

from typing import Annotated

from pydantic import Field

from kernels_eval.frozen import FileContent, FrozenModel


class ValidationConfig(FrozenModel):
    """Limits of the checks between stages."""

    max_quarantined_fraction: float = Field(default=0.05, ge=0, le=1)
    """A batch of which more rows are quarantined stops the flow."""
    suites: Annotated[str | None, FileContent] = None
    """Folder of edited Great Expectations suites; none: the ones that ship with kernelmill."""
