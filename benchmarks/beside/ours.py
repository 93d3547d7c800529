"""Our models on the split of `benchmarks.libraries`, by the stages of a run: search, train, blend."""

from collections.abc import Sequence
from datetime import date
from functools import partial

from flows.settings import RunSettings
from models.base import Model
from tasks.blend import blend
from tasks.stores import fits, matrices
from tasks.stores.matrices import SplitMatrices
from tasks.train import train
from tasks.tuning import run_trial
from tasks.tuning.before_fits import Log, Wanted, settle

RUN = "benchmark"


def fitted(run: RunSettings, names: Sequence[str], split: SplitMatrices) -> dict[str, Model]:
    """Each model, and `blend` of them where one is better than its best member on validation users; prints settings.

    A model has the settings that the data set's file has for it, or those of the search that a run makes.
    """
    home, digest, day = run.home, matrices.write(run.home, split), date.today()
    log = Log(home, split.protocol, digest, split.train, day, run.seed, trial=run_trial)
    settings, digests = {}, {}
    keep = partial(train, home, RUN, protocol=split.protocol, matrices_digest=digest, seed=run.seed)
    for name in names:
        settled = settle(log, name, run.models[name], Wanted("auto", tuned=run.dataset.models))()
        print(f"{name}: {settled.origin}, {settled.reason}", flush=True)
        settings[name] = settled.settings
        digests[name] = keep(model=name, settings=settled.settings).digest
    found = blend(
        home, RUN, protocol=split.protocol, matrices_digest=digest, digests=digests, settings=settings,
        seed=run.seed, day=day,
    )  # fmt: skip
    if found is None:
        print("blend: not better than its best member on validation users", flush=True)
    else:
        print("blend: " + " + ".join(f"{one.weight:g} {one.model}" for one in found.members), flush=True)
        digests["blend"] = keep(model="blend", settings=found).digest
    return {name: fits.load(home, name, one) for name, one in digests.items()}
