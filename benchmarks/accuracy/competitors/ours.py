"""Our models on the split of `benchmarks.accuracy.libraries`, by the stages of a run: search, train, blend."""

from collections.abc import Sequence
from datetime import date
from functools import partial

from oneclass.flows.settings import RunSettings
from oneclass.models.base import Model
from oneclass.tasks.blend import choose_components
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import train
from oneclass.tasks.tuning import record_pending_trial
from oneclass.tasks.tuning.auto import SearchData, SearchRequest, choose_settings

RUN = "benchmark"


def fitted(run: RunSettings, names: Sequence[str], split: SplitMatrices) -> dict[str, Model]:
    """Each model, and `blend` of them where one is better than its best member on validation users; prints settings.

    A model has the settings that the data set's file has for it, or those of the search that a run makes.
    """
    home, digest, day = run.home, matrices.store_split(run.home, split), date.today()
    log = SearchData(home, split.protocol, digest, split.train, day, run.seed, trial=record_pending_trial)
    settings, digests = {}, {}
    keep = partial(train, home, RUN, protocol=split.protocol, matrices_digest=digest, seed=run.seed)
    for name in names:
        settled = choose_settings(log, name, run.models[name], SearchRequest("auto", tuned=run.dataset.models))()
        print(f"{name}: {settled.origin}, {settled.reason}", flush=True)
        settings[name] = settled.settings
        digests[name] = keep(model=name, settings=settled.settings).digest
    found = choose_components(
        home, RUN, protocol=split.protocol, matrices_digest=digest, digests=digests, settings=settings,
        seed=run.seed, day=day,
    )  # fmt: skip
    if found is None:
        print("blend: not better than its best member on validation users", flush=True)
    else:
        print("blend: " + " + ".join(f"{one.weight:g} {one.model}" for one in found.members), flush=True)
        digests["blend"] = keep(model="blend", settings=found).digest
    return {name: fits.load_fit(home, name, one) for name, one in digests.items()}
