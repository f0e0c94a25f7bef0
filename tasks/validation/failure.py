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

    heading = "validation failed"

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.sentence()

    @property
    def summary(self) -> str:
        """Names the expectation and its column."""
        return f"{self.failure.expectation} on {self.failure.column} failed"

    def markdown(self) -> str:
        """Return a table of what was expected and found, and what to do."""
        failure = self.failure
        rows = [
            ("expectation", f"`{failure.expectation}` of suite `{failure.suite}`"),
            ("column", f"`{failure.column}`"),
            ("expected", failure.expected),
            ("found", failure.found),
            ("an example", f"row `{failure.example}`" if failure.example != "-" else "the batch as a whole"),
            ("data", f"`{failure.data}`"),
            ("Data Docs", f"`{failure.data_docs}`"),
        ]
        body = "\n".join(f"| **{name}** | {_cell(value)} |" for name, value in rows)
        return (
            f"| | |\n|---|---|\n{body}\n\n"
            f"Why this stops the run: {failure.consequence or 'the expectation is critical'}.\n\n"
            "The same data fails again: nothing was retried, nothing was published. Mend the data or the expectation, "
            "then start the same run again; finished stages are not repeated."
        )


def _cell(text: str) -> str:
    """Return text as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")
