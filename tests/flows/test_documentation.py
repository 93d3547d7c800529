"""Every documented command parses, every named file exists, the pages keep to their limits, and the tutorial runs."""

import gzip
import json
import pkgutil
import re
import shlex
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

import oneclass
from oneclass.flows import commands
from oneclass.models.registry import MODELS
from oneclass.tasks import datasets
from tests.tasks.cluster.conftest import start_cluster
from tests.typed import ELSEWHERE, ROOT, indented_blocks, read_page, run_line, serve_line

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
ADDED = "cosine_knn"  # the model that docs/explanation/adding_a_model.md adds


def list_typed_lines() -> list[str]:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    return [found for text in texts for found in re.findall(r"^    .*?-m (flows\.\S+ .*)$", text, flags=re.MULTILINE)]


@pytest.mark.parametrize("line", list_typed_lines())
def test_a_documented_command_is_taken(line):
    module, *arguments = shlex.split(line)
    if "--help" in arguments:
        return
    _, given, _ = commands.build_app(module.removeprefix("flows."))(arguments)
    models = [given.model] if getattr(given, "model", None) else getattr(given, "models", [])
    assert set(models) <= {*MODELS, ADDED}


@pytest.mark.parametrize(
    ("page", "start"), [("datasets", "title = "), ("datasets", "[columns]"), ("lists", "[placements")]
)
def test_a_documented_data_set_is_taken(page, start, tmp_path):
    blocks = indented_blocks(read_page(f"docs/how-to/{page}.md"))
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "shop.toml").write_text(next(block for block in blocks if block.startswith(start)))
    assert datasets.load_dataset("shop", tmp_path).name == "shop"


@pytest.mark.parametrize("page", NAMES)
def test_every_file_and_every_test_that_a_page_names_exists(page):
    rooms = "flows|tasks|models|sql|data_contracts|tests|benchmarks|docs"
    named = set(re.findall(rf"`((?:{rooms})/[\w/.-]*)(?:::(\w+)`)?", read_page(page))) - {(f"models/{ADDED}.py", "")}
    assert not [name for name, _ in named if not (ROOT / name).exists()]
    assert not [(name, test) for name, test in named if test and f"def {test}(" not in (ROOT / name).read_text()]


PAPERS = [page for page in PAGES if page.parent.name == "papers"]
TEST_NAMES = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
}


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_everything_that_a_papers_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:models|tasks|benchmarks)\.[\w.]+)`", text))
    tests = set(re.findall(r"`(test_\w+)`", text))
    assert min(len(named), len(tests)) >= 5 and tests <= TEST_NAMES
    for dotted in sorted(named):
        pkgutil.resolve_name(dotted if dotted.startswith("benchmarks.") else f"oneclass.{dotted}")


def test_the_pages_are_short():
    limits = {"README.md": 130, "CHANGELOG.md": 60, "docs/glossary.md": 45}
    assert all(len(read_page(page).splitlines()) <= limit for page, limit in limits.items())
    words = (word for page in PAGES if page.parent != ROOT for word in page.read_text(encoding="utf-8").split())
    assert sum(any(map(str.isalnum, word)) for word in words) <= 45_000  # the bars of tables are no words


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_beside_the_site_lead_to_files(page):
    linked = set(re.findall(r"\]\((?!https?://)([^)#]+)", read_page(page)))
    assert not [name for name in linked if not (ROOT / name).exists()]


README, RECOMMEND = read_page("README.md"), read_page("docs/how-to/recommend.md")
GUIDES = [
    "how-to/logs",
    "how-to/datasets",
    "how-to/recommend",
    "how-to/lists",
    "how-to/arrivals",
    "explanation/pipeline",
    "explanation/evaluation",
    "how-to/tuning",
    "how-to/nightly",
    "how-to/cluster",
    "how-to/forget",
]
QUICK = ["--models", "mrf_dense,slim", "--protocols", "strong_generalization"]
SETTINGS = ["--set", "train.tune=off", "mrf_dense.l2=6.0"]
FIT = ["--set", "random_graph.factors=2", "random_graph.iterations=1"]
SHORTER = {
    "flows.backfill": [*QUICK, *SETTINGS],
    "flows.nightly_retrain": [*QUICK, *SETTINGS],
    "flows.tune": ["--trials", "1"],
    "--model wmf": ["--set", "wmf.factors=4", "wmf.iterations=1"],
    "--model random_graph": FIT,
    "--model hpf": ["--set", "hpf.factors=2", "hpf.max_iterations=1"],
    "--protocols next_events": ["--protocols", "next_events"],
    "--every": ["--every", "8w"],
    "publish.companion=random_graph": ["--models", "slim,random_graph", *FIT],
    "--dataset netflix": ["--set", "split.scheme=hashed"],  # a part of the whole log
    "--dataset gowalla": ["--protocols", "given"],
    "flows.backfill --dataset demo": ["--set", "demo.users=300", "demo.items=500", "demo.likes=12000"],
}


def runnable_lines(text: str) -> list[str]:
    """The commands of a page, one per line, except help, servers and placeholders."""
    lines = re.findall(r"^    .*?(python -m flows\..*)$", text, flags=re.MULTILINE)
    return [line for line in lines if not re.search("--help|flows.serve|publish.explore", line)]


def shorten_line(line: str, scheduler: str) -> list[str]:
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
    bought = "".join(f"K-{user};W-{film};1;{3 + user % 20}.6.2025;09:{film:02}\n" for user, film in pairs if film < 60)
    Path("bestellungen.csv").write_text(f"Käufer;Ware;Stück;Tag;Uhrzeit\n{bought}", encoding="utf-8")
    Path("var/datasets").mkdir(parents=True)
    Path("movies.csv").write_text("movieId,title\n" + "".join(f"{film},Film no. {film}\n" for film in films))
    for name, chosen in (("train.txt", slice(0, 12)), ("test.txt", slice(12, 15))):
        Path(name).write_text("".join(f"{user} {' '.join(map(str, of_user[chosen]))}\n" for user, of_user in liked))
    Path("training_set").mkdir()
    for film in films:
        text = f"{film}:\n" + "".join(f"{user},5,2005-01-01\n" for user, one in pairs if one == film)
        Path(f"training_set/mv_{film:07}.txt").write_text(text)


@pytest.fixture(scope="module")
def after_the_pages(prefect_server, tmp_path_factory):
    """The folder in which every command of the pages ran, and the output of each."""
    folder = tmp_path_factory.mktemp("pages")
    texts = [README, *(read_page(f"docs/{name}.md") for name in GUIDES)]
    lines = list(dict.fromkeys(line for text in texts for line in runnable_lines(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ONECLASS_HOME", raising=False)
        patch.setenv("ONECLASS_WEBHOOK", "http://127.0.0.1:9/hook")  # named by a deployment, which asks it for nothing
        write_logs()
        with start_cluster(folder / "cluster") as cluster:
            cluster.worker()
            printed = {line: run_line(line, *shorten_line(line, cluster.address)) for line in lines}
    return folder, printed


@pytest.fixture
def there(after_the_pages, monkeypatch):
    """That folder as the current one."""
    monkeypatch.chdir(after_the_pages[0])
    monkeypatch.delenv("ONECLASS_HOME", raising=False)


@pytest.mark.slow
def test_the_commands_of_the_readme_and_the_guides_run(after_the_pages):
    folder, printed = after_the_pages
    data_sets = {named[1] for line in printed if (named := re.search(r"--dataset (\S+)", line))}
    assert {path.name for path in (folder / "var").iterdir()} >= data_sets == {
        "demo", "mine", "ml-1m", "ml-100k", "ml-latest-small", "lastfm", "netflix", "gowalla", "shop",
        "kueche",
    }  # fmt: skip
    for line, text in printed.items():
        if "flows.backfill" in line and "--every" not in line:
            fitted = "random_graph" if "publish.companion=" in line else "mrf_dense"
            assert fitted in text and "Tables: var/" in text
    recommended = printed["python -m flows.recommend --dataset demo --user 42"]
    assert len(re.findall(r"^ +\d+ +\d+ ", recommended, flags=re.MULTILINE)) == 20
    assert "Published: " in printed["python -m flows.explain --dataset mine --user 42"]
    assert "Film no." in pl.read_parquet(folder / "var/ml-latest-small/published/model/items.parquet")["title"][0]


@pytest.mark.slow
@pytest.mark.parametrize("text", [README, RECOMMEND], ids=["README.md", "recommend.md"])
def test_the_snippet_on_publications_runs(there, text):
    (snippet,) = (block for block in indented_blocks(text) if block.startswith("import oneclass\n\nshop"))
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
    (snippet,) = (block for block in indented_blocks(README) if block.startswith("model = oneclass"))
    edges = csr_matrix(np.random.default_rng(1).random((40, 30)) < 0.3, dtype=np.float32)
    frame = oneclass.Interactions(edges).events
    frame = frame.with_columns(pl.col("user_id").cast(pl.String).replace("0", "ann"))
    names = {"oneclass": oneclass, "frame": frame, "matrix": edges, "histories": edges[:3]}
    exec(snippet, names)  # noqa: S102
    assert names["ids"].shape == (3, 20)


@pytest.mark.slow
def test_lists_that_explore_are_published_and_judged(tmp_path, monkeypatch, prefect_server):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    page = read_page("docs/how-to/lists.md")
    [command] = re.findall(r"^    (python -m flows.backfill .*explore=.*)$", page, flags=re.MULTILINE)
    fast = ["--models", "random_graph", "--protocols", "strong_generalization", "--set", "train.tune=off"]
    run_line(command, *fast, "random_graph.iterations=20")
    exec(re.search(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)[1], names := {})  # noqa: S102
    assert names["found"].table["estimator"].to_list() == ["ips", "snips"]
    assert abs(names["found"].supported_share - 1) < 0.1


def list_blocks(kind: str) -> list[str]:
    """List the tutorial's blocks of code of a kind."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", read_page("docs/tutorial.md"), flags=re.MULTILINE | re.DOTALL)
    return [text for of, text in blocks if of == kind]


@pytest.mark.slow
def test_the_tutorial(prefect_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    maker, asker = list_blocks("python")
    (declared,) = list_blocks("toml")
    made, first, asked, serve, curls, night, back = list_blocks("sh")
    Path("make_orders.py").write_text(maker)
    run_line(made.strip())
    Path("var/datasets").mkdir(parents=True)
    Path("var/datasets/shop.toml").write_text(declared)

    table = run_line(first.strip())
    score = {model: float(value) for model, value in re.findall(r"^\| (\w+) .*?(0\.\d+) ±", table, flags=re.MULTILINE)}
    assert score.keys() == {"popularity", "mrf_dense", "slim"} and score["mrf_dense"] > score["popularity"]

    for_user, for_basket, why = map(run_line, asked.strip().splitlines())
    lists = (
        pl.read_parquet("var/shop/published/recommendations.parquet").filter(pl.col("user_id") == "C-42").sort("rank")
    )
    best = lists["item_id"].head(5).to_list()
    assert re.findall(r"^ +\d +(sku-\d+) +(?:Tea|Coffee) no\. \d+", for_user, flags=re.MULTILINE) == best
    assert "Not known, left out: sku-1000" in for_basket
    assert len(re.findall(r"^ +\d +sku-\d+ +Tea no\.", for_basket, flags=re.MULTILINE)) == 5
    assert "sku-79: rank " in why
    command = [sys.executable, "-c", asker]
    answers = subprocess.run(command, capture_output=True, text=True, check=True, env=ELSEWHERE).stdout
    assert answers.count("shape: (5, ") == 3

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with serve_line(serve.strip().replace("8765", port)):
        requests = [shlex.split(line.replace("8765", port))[1] for line in curls.strip().splitlines()]
        user, basket, health = map(fetch_json, requests)
        assert [item["item_id"] for item in user["items"]] == best
        assert len(basket["items"]) == 5 and health["status"] == "ok"
    *moves, look = night.strip().splitlines()
    for line in moves:
        run_line(line)
    before = re.search(r"^\* (\S+)", run_line(look), flags=re.MULTILINE)[1]
    assert re.search(r"^\* (\S+)", run_line(back.strip()), flags=re.MULTILINE)[1] == health["publication"] != before


def fetch_json(address: str):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)
