"""Tables of pooled runs for the terminal: the primary outcome first, everything else marked exploratory."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from tasks.evaluation.pooling import Change, Pooled


def pooled_tables(found: Sequence[Pooled]) -> Iterator[Table]:
    """Yield a table of the primary outcome, and one of all others for each pair of policies."""
    primary = [each for each in found if each.is_primary]
    if primary:
        yield _table("primary outcome", primary, with_policies=True)
    for policies in dict.fromkeys(each.contrast.policies for each in found):
        others = [each for each in found if each.contrast.policies == policies and not each.is_primary]
        if others:
            yield _table(f"{escape(policies)}: exploratory", others, with_policies=False)


def _table(title: str, rows: Sequence[Pooled], with_policies: bool) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("change of", overflow="fold")
    for heading in ("pooled, with interval", "I²", "each"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        contrast = row.contrast
        name = f"{contrast.figure}, {contrast.decoding}, {contrast.problems}"
        table.add_row(
            f"{escape(contrast.policies)}: {name}" if with_policies else name,
            _interval(row.change),
            f"{100 * row.heterogeneity:.0f} %",
            " ".join(f"{change.value:+.3f}" for change in row.changes),
        )
    return table


def _interval(change: Change) -> str:
    return f"{change.value:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"
