"""The files of a saved model: `<name>.npy` of every fitted array, `settings.json`, and the table of its ids, if any."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

logger = logging.getLogger(__name__)
SavedT = TypeVar("SavedT", bound=BaseModel)


def write_model(model: Any, folder: Path) -> None:
    """Write a fitted model into a folder, which is made if missing."""
    arrays = {"item_degrees": model.item_degrees, **model._arrays()}
    folder.mkdir(parents=True, exist_ok=True)
    if model.item_features is not None:
        from oneclass.models.attributes.new_items import store_features

        arrays |= store_features(model.item_features)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    if model.ids is not None:
        model.ids.table.save(folder / "interactions")
    given, resolved = (settings.model_dump(mode="json") for settings in (model.settings, model.params))
    description = {"model": model.name, "seed": model.seed, "settings": given, "resolved": resolved}
    (folder / "settings.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")


def read_model(kind: Any, folder: Path, threads: int) -> Any:
    """Return the model of a class that `write_model` wrote, with memory-mapped arrays."""
    if not (folder / "settings.json").exists():
        raise FileNotFoundError(f"{folder}: no model is saved here; give the folder that `save` wrote")
    saved = json.loads((folder / "settings.json").read_text())
    if saved["model"] != kind.name:
        raise ValueError(f"{folder}: holds a {saved['model']}, not a {kind.name}")
    given, resolved = (upgrade_settings(kind.Settings, saved[of]) for of in ("settings", "resolved"))
    model = kind(given, seed=saved["seed"], threads=threads)
    model.params = resolved
    # Plain arrays, since each access to a `memmap` costs microseconds.
    arrays = {file.stem: np.asarray(np.load(file, mmap_mode="r")) for file in folder.glob("*.npy")}
    model.item_degrees = arrays.pop("item_degrees")
    if "item_features_count" in arrays:
        from oneclass.models.attributes.new_items import take_features

        model.item_features = take_features(arrays)
    try:
        model._restore(arrays)
    except KeyError as error:
        raise ValueError(f"{folder}: has no {error}, as of an earlier version; fit the model again") from error
    model._cache = {}
    return model


def upgrade_settings(kind: type[SavedT], saved: Mapping[str, Any]) -> SavedT:
    """Build settings that an earlier version may have saved, without those that are gone, or whose values are."""
    try:
        return kind.model_validate(saved, context={"saved": True})
    except ValidationError:
        return kind.model_validate(select_allowed(kind, saved), context={"saved": True})


def select_allowed(kind: type[BaseModel], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an earlier version saved, without those that are gone, or whose values are."""
    known = {name: value for name, value in saved.items() if name in kind.model_fields}
    try:
        kind.model_validate(known)
    except ValidationError as error:
        for name in {part["loc"][0] for part in error.errors() if part["loc"]}:
            logger.warning("%s: the saved value of %s is allowed no more; its default counts", kind.__name__, name)
            del known[str(name)]
    return known
