"""Deepstone tells how fast a deep network trains here, where the time goes, and proves the answer."""

from os import PathLike

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deepstone.notebook import Results
    from deepstone.results.tune import Look
    from deepstone.tuning import Tuning

__version__ = "0.1.0"


def open(store: "str | PathLike[str] | None" = None) -> "Results":
    """Open a store for notebooks: `deepstone.open().to_pandas()`. Imported lazily: workers never need it."""
    from deepstone.notebook import open_results

    return open_results(store)


def tune(
    model: str,
    *,
    budget: "str | float | None" = None,
    same: str = "close",
    objective: str = "throughput",
    limits: "str | Iterable[str]" = (),
    store: "str | PathLike[str] | None" = None,
    on_look: "Callable[[Look], None] | None" = None,
    **axes: "str | int | Iterable[str | int]",
) -> "Tuning":
    """Search for the best setup of a model on this machine, as `deepstone tune` does.

        answer = deepstone.tune("alexnet-owt", budget="5m", batch=32, precision=["auto", "bf16-mixed"])
        answer.setup, answer.ratio

    model      a model of the zoo, "file.py:function", or a file .onnx, .prototxt or .json
    budget     the time for all of it: seconds, or a text such as "5m"; None: ten minutes
    same       what may change of the training: "exact", "close" or "any"
    objective  what is sought: "throughput", "energy" or "memory"; "energy:slowdown=1.05"
    limits     what a setup may use at most, as in ["memory=40G", "power=500W"]
    store      the folder where runs are kept; None: DEEPSTONE_STORE, or that of the command line
    on_look    is called after every launch
    axes       the setup: batch=32 fixes an axis, a list is searched over, every other axis over what this machine has

    A search that was killed goes on. The answer has `setup`, `ratio`, `is_better`, `found`, and methods `page`, `code`
    and `looks`. Raises UsageError, MissingError or StoreError, each in one line with the remedy.
    """
    from deepstone.tuning import tune as search  # imported when it is called, as in `open`

    return search(
        model, budget=budget, same=same, objective=objective, limits=limits, store=store, on_look=on_look, **axes
    )
