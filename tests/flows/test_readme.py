"""Run the commands and snippets of the README and the guides in their order, on small files with the names given there.

Each runs as printed, with flags appended that make it short. `test_deployments.py` runs the commands that need a worker,
`test_store_by_url.py` those with a store, `test_tutorial.py` the tutorial, `.ci/run` the README's two set-up commands.
"""

import gzip
import io
import re
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

import oneclass
from tests.tasks.cluster.conftest import started
from tests.typed import indented, page, run, served

README, RECOMMEND = page("README.md"), page("docs/how-to/recommend.md")
GUIDES = [
    "how-to/datasets",
    "how-to/recommend",
    "how-to/arrivals",
    "explanation/pipeline",
    "explanation/evaluation",
    "explanation/scaling",
    "how-to/tuning",
    "how-to/nightly",
    "how-to/cluster",
]
QUICK = ["--models", "mrf_dense,slim", "--protocols", "strong_generalization"]
SETTINGS = ["--set", "train.tune=off", "mrf_dense.l2=6.0"]
FIT = ["--set", "random_graph.factors=2", "random_graph.iterations=1"]
SHORTER = {
    "flows.backfill": [*QUICK, *SETTINGS],
    "flows.nightly_retrain": [*QUICK, *SETTINGS],
    "flows.sweep": ["--sweep", "random_graph_r", *FIT],
    "flows.tune": ["--trials", "1"],
    "--model wmf": ["--set", "wmf.factors=4", "wmf.iterations=1"],
    "--model random_graph": FIT,
    "--model hpf": ["--set", "hpf.factors=2", "hpf.max_iterations=1"],
    "--protocols next_events": ["--protocols", "next_events"],
    "--every": ["--every", "8w"],
    "--dataset netflix": ["--set", "split.scheme=hashed"],  # a part of the whole log
    "--dataset gowalla": ["--protocols", "given"],
    "flows.backfill --dataset demo": ["--set", "demo.users=300", "demo.items=500", "demo.likes=12000"],
}


def commands(text: str) -> list[str]:
    """The commands of a page, one per line, except help, servers, stores and placeholders."""
    lines = re.findall(r"^    .*?(python -m flows\..*)$", text, flags=re.MULTILINE)
    return [line for line in lines if not re.search("--help|flows.serve|--store", line)]


def shortened(line: str, scheduler: str) -> list[str]:
    more = [*SHORTER.items(), ("--dask", ["--dask", scheduler])]  # which listens on a free port
    return [word for name, words in more if re.search(rf"(?<![\w-]){re.escape(name)}\b", line) for word in words]


def write_logs() -> None:
    """Write the files that the pages name to the current folder: 1,200 users of two tastes, 15 films each."""
    generator = np.random.default_rng(3)
    films = np.array([1, 3, 5, 7, 9, 1193, 2858, *range(20, 53)])
    liked = [(user, films[generator.choice(20, 15, replace=False) * 2 + user % 2]) for user in range(1, 1201)]
    pairs = [(user, film) for user, of_user in liked for film in of_user]
    days = generator.integers(0, 90, len(pairs)) * 86_400 + 883_612_800  # from 1998-01-01 on
    rows = {
        "ratings.csv": (",", "userId,movieId,rating,timestamp", "5"),
        "log.csv": (",", "user,item,value,time", "1"),
        "user_artists.dat": ("\t", "userID\tartistID\tweight", "7"),
        "u.data": ("\t", "", "5"),
    }
    for name, (delimiter, header, value) in rows.items():
        timed = name != "user_artists.dat"
        lines = [
            delimiter.join([str(user), str(film), value, *([str(day)] if timed else [])])
            for (user, film), day in zip(pairs, days, strict=True)
        ]
        Path(name).write_text("\n".join([*filter(None, [header]), *lines, ""]))
    Path("orders").mkdir()
    orders = "customer,sku,quantity\n" + "".join(f"C-{user},sku-{film},1\n" for user, film in pairs)
    with gzip.open("orders/orders-1.csv.gz", "wt") as file:
        file.write(orders)
    Path("movies.csv").write_text("movieId,title\n" + "".join(f"{film},Film no. {film}\n" for film in films))
    for name, chosen in (("train.txt", slice(0, 12)), ("test.txt", slice(12, 15))):
        Path(name).write_text("".join(f"{user} {' '.join(map(str, of_user[chosen]))}\n" for user, of_user in liked))
    with tarfile.open("training_set.tar.gz", "w:gz") as packed:
        for film in films:
            text = f"{film}:\n" + "".join(f"{user},5,2005-01-01\n" for user, one in pairs if one == film)
            entry = tarfile.TarInfo(f"training_set/mv_{film:07}.txt")
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))


@pytest.fixture(scope="module")
def after_the_pages(prefect_server, tmp_path_factory):
    """The folder in which every command of the pages ran, and the output of each."""
    folder = tmp_path_factory.mktemp("pages")
    texts = [README, *(page(f"docs/{name}.md") for name in GUIDES)]
    lines = list(dict.fromkeys(line for text in texts for line in commands(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ONECLASS_HOME", raising=False)
        write_logs()
        with started(folder / "cluster") as cluster:
            cluster.worker()
            printed = {line: run(line, *shortened(line, cluster.address)) for line in lines}
    return folder, printed


@pytest.fixture
def there(after_the_pages, monkeypatch):
    """That folder as the current one."""
    monkeypatch.chdir(after_the_pages[0])
    monkeypatch.delenv("ONECLASS_HOME", raising=False)


@pytest.mark.slow
def test_the_commands_of_the_readme_and_the_guides_run(after_the_pages):
    folder, printed = after_the_pages
    data_sets = {re.search(r"--dataset (\S+)", line)[1] for line in printed}
    assert {path.name for path in (folder / "var").iterdir()} >= data_sets == {
        "demo", "mine", "ml-1m", "ml-100k", "ml-latest-small", "lastfm", "netflix", "gowalla", "shop",
    }  # fmt: skip
    for line, text in printed.items():
        if "flows.backfill" in line and "--every" not in line:
            assert "mrf_dense" in text and "Tables: var/" in text
    recommended = printed["python -m flows.recommend --dataset demo --user 42"]
    assert len(re.findall(r"^ +\d+ +\d+ ", recommended, flags=re.MULTILINE)) == 20
    assert "Film no. " in printed["python -m flows.explain --dataset ml-1m --user 42 --titles movies.csv"]
    assert "Film no." in pl.read_parquet(folder / "var/ml-latest-small/published/model/items.parquet")["title"][0]


@pytest.mark.slow
@pytest.mark.parametrize("text", [README, RECOMMEND], ids=["README.md", "recommend.md"])
def test_the_snippet_on_publications_runs(there, text):
    (snippet,) = (block for block in indented(text) if block.startswith("import oneclass\n\nshop"))
    names = {"frame": pl.DataFrame({"user_id": ["42", "7"]})}
    for line in filter(None, snippet.splitlines()):
        if line.startswith("shop."):
            answers = eval(line, names)
            for answer in answers if isinstance(answers, tuple) else (answers,):
                assert len(answer) and {"item_id", "title", "score"} <= set(answer.columns)
        else:
            exec(line, names)  # noqa: S102
    assert names["shop"].dataset == "demo"


def test_the_snippet_on_models_runs():
    (snippet,) = (block for block in indented(README) if block.startswith("model = oneclass"))
    edges = csr_matrix(np.random.default_rng(1).random((40, 30)) < 0.3, dtype=np.float32)
    names = {"oneclass": oneclass, "interactions": edges, "histories": edges[:3]}
    exec(snippet, names)  # noqa: S102
    assert names["ids"].shape == (3, 20) and names["deviation"].shape == (3, 30)


@pytest.mark.slow
def test_the_server_of_both_pages_starts(there):
    lines = [
        re.search(r"^    (python -m flows.serve .*)$", text, flags=re.MULTILINE)[1] for text in (README, RECOMMEND)
    ]
    assert lines[1].startswith(lines[0])
    with served(lines[1], "--port", "0") as (server, _):
        assert server.poll() is None
