"""Which models a machine can fit on a log, and what becomes of the others."""

import json

import pytest

from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.tasks import capacity
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.stores import matrices, runs, warehouse
from tests.conftest import two_tastes
from tests.processes import inflate_cost
from tests.tasks.test_new_items import describe_items, split_all

DEFAULTS = {name: MODELS[name].Settings() for name in Dataset(name="any").default_models}
SHOP = LogSize(166_666, 195_795, 1_850_000, 50_000_000)
GB = 10**9


def test_the_dense_models_of_a_large_catalogue_are_left_out_alone():
    reasons = capacity.find_large_models(DEFAULTS, [SHOP], 20 * GB)
    assert reasons == {
        name: f"a fit on 195,795 items needs about {needed} GB of memory, and 20.0 GB are free"
        for name, needed in (("mrf_dense", "308.0"), ("slist", "614.7"))
    }


@pytest.mark.parametrize(
    ("log", "left_out"),
    [
        (LogSize(6_040, 3_533, 575_281, 5_000_000), set()),
        (LogSize(100_000, 45_000, 600_000, 30_000_000), {"slist", "mrf_dense"}),
        (LogSize(138_000, 45_000, 20_000_000, 10**9), set()),  # all the others take longer yet
        (LogSize(3_000, 45_000, 200_000, 30_000_000), {"slist"}),  # mrf_dense is inverted over the users
    ],
)
def test_a_model_that_takes_longer_than_all_others_together_is_left_out(log, left_out):
    reasons = capacity.find_large_models(DEFAULTS, [log], 64 * GB)
    assert set(reasons) == left_out
    assert all("CPU minutes, and those of all other models together" in reason for reason in reasons.values())


def test_a_named_model_is_refused_with_what_to_change():
    with pytest.raises(
        InputError,
        match=r"^mrf_dense: a fit on 195,795 items needs about 308.0 GB of memory, and 20.0 "
        r"GB are free. Leave it out of --models, .* or take item_knn, sansa or mrf_sparse in its",
    ):
        capacity.refuse_large_models(DEFAULTS, [SHOP], 20 * GB)
    vectors = {"graph_filter": MODELS["graph_filter"].Settings(vectors=20_000)}
    with pytest.raises(InputError, match=r"graph_filter: .* or lower graph_filter.vectors\.$"):
        capacity.refuse_large_models(vectors, [SHOP], 20 * GB)
    factors = {"hpf": MODELS["hpf"].Settings(factors=20_000)}
    with pytest.raises(InputError, match=r"free. Leave it out of --models, or give the run more memory\.$"):
        capacity.refuse_large_models(factors, [SHOP], 20 * GB)
    capacity.refuse_large_models({"graph_filter": DEFAULTS["graph_filter"]}, [SHOP], 20 * GB)


@pytest.fixture
def shop(home, tmp_path):
    """60 users of two tastes, and 400 items of which only the table of attributes tells."""
    two_tastes(home)
    describe_items(home, tmp_path, [(f"n{item}", str(item % 2), item) for item in range(400)])
    return home, split_all(home)


def test_items_of_the_attribute_table_count_for_the_fit_that_is_published(shop):
    home, digests = shop
    logs = capacity.measure_logs(home, digests.values())
    columns = {name: matrices.load_split(home, digest).train.shape[1] for name, digest in digests.items()}
    assert columns[ALL_EDGES] == columns["leave_one_out"] + 400
    assert {log.items for log in logs} == set(columns.values())
    (dense,) = capacity.find_large_models({"mrf_dense": DEFAULTS["mrf_dense"]}, logs, 57 * 10**6).values()
    assert f"a fit on {columns[ALL_EDGES]:,} items" in dense


def test_a_default_run_notes_what_it_leaves_out_and_what_it_takes(shop, caplog, monkeypatch):
    home, digests = shop
    models = {name: DEFAULTS[name] for name in ("popularity", "mrf_dense", "slim")}
    settings = {"models": {name: of.model_dump() for name, of in models.items()}}
    with runs.record_run(home, "night", "backfill", settings):
        logs = capacity.measure_logs(home, digests.values())
        assert capacity.choose_models(home, "night", models, [""], logs, 10 * GB) == models
        inflate_cost(monkeypatch, MODELS["mrf_dense"], 10**6)
        chosen = capacity.choose_models(home, "night", models, [""], logs, 10 * GB)
        with pytest.raises(InputError, match="mrf_dense: a fit on 4"):
            capacity.choose_models(home, "night", models, ["mrf_dense"], logs, 10 * GB)
    assert list(chosen) == ["popularity", "slim", "sansa"]
    warning = next(record for record in caplog.records if "is left out" in record.message)
    assert warning.levelname == "WARNING" and "mrf_dense is left out: a fit on 4" in warning.message
    with warehouse.open_warehouse(home, read_only=True) as connection:
        (text,) = connection.execute("select settings from operations.runs where run_id = 'night'").fetchone()
    recorded = json.loads(text)
    assert list(recorded["left_out"]) == ["mrf_dense"] and set(recorded["models"]) == set(chosen)
