"""Tables that the commands print."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table


def titled(title: str, left: tuple[str, ...], right: tuple[str, ...] = ()) -> Table:
    """An empty table with a title, and columns aligned to the left and to the right."""
    table = Table(title=escape(title), title_justify="left")
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table
