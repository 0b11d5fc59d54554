"""Deepstone tells how fast a deep network trains here, where the time goes, and proves the answer."""

from os import PathLike

TYPE_CHECKING = False
if TYPE_CHECKING:
    from deepstone.notebook import Results

__version__ = "0.1.0"


def open(store: "str | PathLike[str] | None" = None) -> "Results":
    """Open a store for notebooks: `deepstone.open().to_pandas()`. Imported lazily: workers never need it."""
    from deepstone.notebook import open_results

    return open_results(store)
