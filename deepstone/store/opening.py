"""Finding or making a store in a folder, without ever taking a folder that is something else."""

from __future__ import annotations

from pathlib import Path

from deepstone.durable import make_folder
from deepstone.errors import StoreError
from deepstone.store.claims import remove_abandoned_claims
from deepstone.store.faults import as_store_error
from deepstone.store.files import publish, remove_abandoned
from deepstone.store.layout import FORMAT, Layout


def open_layout(root: Path, *, create: bool) -> Layout:
    """The layout of a store that is there, clean of what dead processes left; made when it may be."""
    layout = Layout(root=root)
    with as_store_error("open", root):
        if not _has_format(layout):
            if not create:
                raise StoreError(f"there is no store in {root}; name one with --store DIR or DEEPSTONE_STORE")
            _make(layout)
        if not layout.runs.is_dir():
            make_folder(layout.runs)
    clean(layout)
    return layout


def clean(layout: Layout) -> None:
    """Removes what killed processes left behind."""
    for folder in (layout.tmp, layout.claims, layout.runs):
        remove_abandoned(folder)
    remove_abandoned_claims(layout.claims)


def _has_format(layout: Layout) -> bool:
    try:
        found = layout.format.read_bytes()[:100]
    except (FileNotFoundError, NotADirectoryError):
        return False
    if found != FORMAT.encode("ascii"):
        raise StoreError(
            f"{layout.format} does not say {FORMAT.strip()!r}: the store was made by another version of Deepstone, "
            "or the folder is something else; name another store with --store DIR or DEEPSTONE_STORE"
        )
    return True


def _make(layout: Layout) -> None:
    layout.root.mkdir(parents=True, exist_ok=True)
    foreign = next((entry.name for entry in layout.root.iterdir() if not layout.is_own(entry.name)), None)
    if foreign is not None:
        raise StoreError(
            f"{layout.root} is no store and not empty (it holds {foreign!r}); name a new folder with --store DIR"
        )
    make_folder(layout.tmp)
    publish(FORMAT.encode("ascii"), layout.format, tmp=layout.tmp)
