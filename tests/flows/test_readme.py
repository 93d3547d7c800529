"""The commands and snippets of the README and of docs/recommend.md, in their order, on small files of the names there.

They stand as they do on the page; only flags that make them short are added behind. What is not here is run elsewhere: the
commands that need a worker in `test_deployments.py`, the two that begin the README in `.ci/run`.
"""

import io
import re
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

from tests.tasks.cluster.conftest import started
from tests.typed import indented, page, run, served

README, RECOMMEND = page("README.md"), page("docs/recommend.md")
QUICK = ["--models", "mrf_dense", "--protocols", "strong_generalization", "--set", "train.tune=off", "mrf_dense.l2=6.0"]
SHORTER = {
    "flows.backfill": QUICK,
    "flows.nightly_retrain": QUICK,
    "flows.sweep": ["--sweep", "random_graph_r", "--set", "random_graph.factors=2", "random_graph.iterations=1"],
    "flows.tune": ["--trials", "1", "--set", "wmf.factors=4", "wmf.iterations=1"],
    "netflix": ["--models", "popularity,mrf_dense", "--set", "split.scheme=hashed"],  # on less than the whole log
    "gowalla": ["--protocols", "given"],
    "demo": ["--set", "demo.users=300", "demo.items=500", "demo.likes=12000"],
}


def commands(text: str) -> list[str]:
    """The commands of a page, one a line, but for help and what serves or measures."""
    found = re.findall(r"^    .*?(python -m flows\..*)$", text, flags=re.MULTILINE)
    return [line for line in found if "--help" not in line and "flows.serve" not in line]


def shortened(line: str, scheduler: str = "") -> list[str]:
    more = [*SHORTER.items(), ("--dask", ["--dask", scheduler])]  # which listens on a port that is free
    return [word for name, words in more if re.search(rf"[. ]{name.split('.')[-1]}\b", line) for word in words]


def write_logs() -> None:
    """The files that the pages name, in the present folder: 1,200 people of two tastes, 15 films each."""
    generator = np.random.default_rng(3)
    films = np.array([1, 3, 5, 7, 9, 1193, 2858, *range(20, 53)])
    liked = [(user, films[generator.choice(20, 15, replace=False) * 2 + user % 2]) for user in range(1, 1201)]
    pairs = [(user, film) for user, of_user in liked for film in of_user]
    rows = {
        "ratings.csv": (",", "userId,movieId,rating,timestamp", "5,1000000000"),
        "log.csv": (",", "user,item,value", "1"),
    }
    rows["user_artists.dat"] = ("\t", "userID\tartistID\tweight", "7")
    for name, (between, header, last) in rows.items():
        lines = [between.join([str(user), str(film), *last.split(",")]) for user, film in pairs]
        Path(name).write_text("\n".join([header, *lines, ""]))
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
def after_the_readme(prefect_server, tmp_path_factory):
    """The folder in which every command of the README was run, and what each printed."""
    folder = tmp_path_factory.mktemp("readme")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ONECLASS_HOME", raising=False)
        write_logs()
        with started(folder / "cluster") as cluster:
            cluster.worker()
            said = {line: run(line, *shortened(line, cluster.address)) for line in commands(README)}
    return folder, said


@pytest.fixture
def there(after_the_readme, monkeypatch):
    """That folder as the present one."""
    monkeypatch.chdir(after_the_readme[0])
    monkeypatch.delenv("ONECLASS_HOME", raising=False)


@pytest.mark.slow
def test_the_readmes_commands_do_what_it_says(after_the_readme):
    folder, said = after_the_readme
    data_sets = {re.search(r"--dataset (\S+)", line)[1] for line in said}
    assert {path.name for path in (folder / "var").iterdir()} >= data_sets == {
        "demo", "mine", "ml-1m", "lastfm", "netflix", "gowalla",
    }  # fmt: skip
    for line, text in said.items():
        if "flows.backfill" in line:
            assert "mrf_dense" in text and "Tables: var/" in text
    (history,) = (text for line, text in said.items() if "--history" in line)
    assert len(re.findall(r"^ +\d+ +\d+ ", history, flags=re.MULTILINE)) == 20
    (closer,) = (text for line, text in said.items() if "flows.explain" in line)
    assert "Film no. " in closer


@pytest.mark.slow
def test_what_is_told_of_recommendations_is_so(there):
    said = {line: run(line, *shortened(line)) for line in commands(RECOMMEND)}
    assert len(said) == 4
    assert "Film no." in pl.read_parquet("var/ml-latest-small/published/model/items.parquet")["title"][0]


@pytest.mark.slow
@pytest.mark.parametrize("text", [README, RECOMMEND], ids=["README.md", "docs/recommend.md"])
def test_the_snippet_on_what_is_published_runs(there, text):
    (snippet,) = (block for block in indented(text) if block.startswith("from flows import published"))
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
    (snippet,) = (block for block in indented(README) if block.startswith("from models.random_graph"))
    edges = csr_matrix(np.random.default_rng(1).random((40, 30)) < 0.3, dtype=np.float32)
    names = {"interactions": edges, "histories": edges[:3]}
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
