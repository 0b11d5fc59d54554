"""Deepstone tells how fast a deep network trains here, where the time goes, and proves the answer."""

from os import PathLike

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from deepstone.notebook import Results
    from deepstone.tuning import Tuning

__version__ = "0.1.0"


def open(store: "str | PathLike[str] | None" = None) -> "Results":
    """Open a store for notebooks: `deepstone.open().to_pandas()`. Imported lazily: workers never need it."""
    from deepstone.notebook import open_results

    return open_results(store)


def tune(model: str, **options: "Any") -> "Tuning":
    """Search for the best setup of a model: `deepstone.tune("alexnet-owt", batch=32, budget="5m")`; see
    `deepstone.tuning.tune`. Imported lazily, as `open` is."""
    from deepstone.tuning import tune as search

    return search(model, **options)
