"""The registry of models by name, those of other packages among them. A model's module is imported on first access.

A package declares its models as entry points of the group `oneclass.models`; none replaces a model of this one. A model
of any importable module is also known by its location, `module:Class`, which is then its name.
"""

from collections.abc import Iterator, MutableMapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from oneclass.models.base import Model

GROUP = "oneclass.models"  # of entry points


class ModelRegistry(MutableMapping[str, type[Model]]):
    """Estimators by name, in the order in which tables without another order list them.

    Args:
        locations: `module:class` by name.
    """

    def __init__(self, locations: dict[str, str]) -> None:
        self._known: dict[str, str | type[Model]] = dict(locations)

    def __getitem__(self, name: str) -> type[Model]:
        """Return the class; one that is named by its location has this name.

        Raises:
            KeyError: the name is unknown.
            ImportError: there is no such module.
            TypeError: the location is not that of a model.
        """
        if ":" in name and name not in self._known:
            return _load_class(name)
        model = self._known[name]
        if isinstance(model, str):
            module, _, kind = model.partition(":")
            model = self._known[name] = getattr(import_module(module), kind)
        return model

    def __setitem__(self, name: str, model: type[Model]) -> None:
        self._known[name] = model

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:  # without an import
        return name in self._known or (isinstance(name, str) and ":" in name)


@cache
def _load_class(location: str) -> type[Model]:
    module, _, kind = location.partition(":")
    found = getattr(import_module(module), kind, None)
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise TypeError(f"{location}: {module} has no subclass of oneclass.Model with the name {kind}")
    # The same class under this name: its source, by which fits are known, is that of the module.
    return type(kind, (found,), {"name": location, "__module__": found.__module__, "__doc__": found.__doc__})


_OTHERS = {point.name: f"{point.module}:{point.attr}" for point in entry_points(group=GROUP)}
MODELS = ModelRegistry(
    _OTHERS
    | {
        "popularity": "oneclass.models.popularity:Popularity",
        "bpr_uniform": "oneclass.models.bpr.model:BPRUniform",
        "bpr_popularity": "oneclass.models.bpr.model:BPRPopularity",
        "mrf_dense": "oneclass.models.mrf.dense:MRFDense",
        "ease": "oneclass.models.mrf.dense:EASE",
        "mrf_sparse": "oneclass.models.mrf.sparse:MRFSparse",
        "slim": "oneclass.models.slim.model:SLIM",
        "item_knn": "oneclass.models.item_knn:ItemKNN",
        "rp3beta": "oneclass.models.item_knn:RP3beta",
        "sansa": "oneclass.models.sansa.model:SANSA",
        "slist": "oneclass.models.directed.slist:SLIST",
        "transitions": "oneclass.models.directed.transitions:Transitions",
        "wmf": "oneclass.models.wmf.model:WMF",
        "graph_filter": "oneclass.models.graph_filter.model:GraphFilter",
        "random_graph": "oneclass.models.random_graph.model:RandomGraph",
        "paired_symbols": "oneclass.models.paired_symbols.model:PairedSymbols",
        "binary_matrix": "oneclass.models.binary_matrix.model:BinaryMatrix",
        "hpf": "oneclass.models.hpf.model:HPF",
        "cdae": "oneclass.models.autoencoders.networks:CDAE",
        "mult_dae": "oneclass.models.autoencoders.networks:MultDAE",
        "mult_vae": "oneclass.models.autoencoders.networks:MultVAE",
        "repeat": "oneclass.models.repeat.model:Repeat",
        "repeat_mixture": "oneclass.models.repeat.mixture:RepeatMixture",
        "blend": "oneclass.models.blend.model:Blend",
    }
)
