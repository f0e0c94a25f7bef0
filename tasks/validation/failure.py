"""How a failed check is told: which expectation of which suite, on which column, what was found, and an example row."""

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel


class Failure(FrozenModel):
    """One expectation that did not hold."""

    data: str
    """What was checked: the folder of the artifact."""
    suite: str
    expectation: str
    """Great Expectations' name of it."""
    column: str
    """Column of the suite's projection; columns joined by a comma, or `-` for the table."""
    found: str
    expected: str
    example: str
    """Id of one row that breaks it; `-` where it is a property of the whole batch."""
    consequence: str = ""
    """Why this stops the flow, where one row alone would not."""
    data_docs: str = ""
    """Page that shows everything that was checked."""

    def sentence(self) -> str:
        """Say it in one sentence."""
        text = (
            f"{self.data}: suite {self.suite!r}: {self.expectation} on column {self.column}: "
            f"expected {self.expected}, found {self.found}"
        )
        if self.example != "-":
            text += f", e.g. row {self.example}"
        if self.consequence:
            text += f"; {self.consequence}"
        if self.data_docs:
            text += f" (see {self.data_docs})"
        return text


class ValidationFailed(InputError):  # noqa: N818 (says what happened, as flows show it)
    """A batch that must not go on. Never retried: the same data fails again."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.sentence()
