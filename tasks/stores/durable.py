"""Writes that survive a power cut: data reaches the disk before the name that makes it visible.

The order is: the files of a folder, the folder, its manifest, then the rename, link or row by which readers find it.
DuckDB syncs its own log at each commit, and its file twice at each checkpoint, the blocks before the header. It does
not sync the folder in which it creates the file.
"""

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Wait until a file's data, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Sync every file and folder in a folder, then the folder itself."""
    for parent, _, files in os.walk(folder, topdown=False):
        for file in files:
            sync_path(Path(parent, file))
        sync_path(Path(parent))


def make_folder(folder: Path) -> None:
    """Create a folder and its absent parents, if it does not exist, each synced in its parent."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_path(folder.parent)


def replace_path(source: Path, target: Path) -> None:
    """Rename a file, a link or a folder whose content is synced, replacing `target`; the new name is synced first."""
    os.replace(source, target)
    sync_path(target.parent)
    if source.parent != target.parent:
        sync_path(source.parent)


def install_file(source: Path, target: Path) -> None:
    """Sync a complete file and rename it to `target`, atomically."""
    sync_path(source)
    replace_path(source, target)


def write_text(temporary: Path, target: Path, text: str) -> None:
    """Write a text file by way of `temporary`, in a folder of the same file system, atomically."""
    temporary.write_text(text, encoding="utf-8")
    install_file(temporary, target)
