"""Each benchmark states its command and answers `--help`; the ladder runs on a tiny log."""

import importlib
import io
import os
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy import repeats
from benchmarks.reliability import serve_publications
from benchmarks.scale import ladder
from benchmarks.scale.workloads import models, processes, table
from benchmarks.scale.workloads.processes import Measurement
from benchmarks.scale.workloads.table import LogSize
from oneclass.models.popularity import Popularity

FOLDER = Path(__file__).parents[1] / "benchmarks"
GROUPS = ("accuracy", "speed", "scale", "reliability")
HELPERS = {
    "accuracy/competitors",
    "accuracy/paper_table",
    "accuracy/split_logs",
    "reliability/fuzzing",
    "reliability/rule_oracle",
    "reliability/year",
    "scale/pickled_calls",
    "speed/logs",
    "speed/peers",
    "speed/roofline",
    "speed/timing",
}
NAMES = sorted(f"{group}/{file.stem}" for group in GROUPS for file in (FOLDER / group).glob("*.py"))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in HELPERS])
def test_a_benchmark_states_its_command_and_answers_help(name, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    dotted = f"benchmarks.{name.replace('/', '.')}"
    module = importlib.import_module(dotted)
    assert f"python -m {dotted}" in module.__doc__
    monkeypatch.setattr("sys.argv", [dotted, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0 and "usage: " in capsys.readouterr().out


def test_every_benchmark_is_in_a_group():
    assert {file.relative_to(FOLDER).parts[0] for file in FOLDER.rglob("*.py")} == set(GROUPS)


TINY = ["--edges", "2e3", "--items", "300", "--stages", "ingest", "publish", "--threads", "1", "--in-process"]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The cells of the table's lines, by what they are of; popularity is made to fail, and no library is there."""

    def fails(self, *_):
        raise ValueError("made to fail")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Popularity, "_fit", fails)
        patch.setattr(models, "is_installed", lambda library: False)
        home = str(tmp_path_factory.mktemp("ladder"))
        with redirect_stdout(io.StringIO()) as written:
            ladder.main([*TINY, "--models", "popularity", "mrf_dense", "--against", "implicit", "--home", home])
    rows = [line.strip("| ").split(" | ") for line in written.getvalue().splitlines() if line.startswith("|")]
    assert tuple(rows[0]) == table.COLUMNS
    return {row[1]: dict(zip(table.COLUMNS, row, strict=False)) for row in rows[2:]}


def test_every_stage_and_model_has_its_row(printed):
    fits = ["mrf_dense: fit", "mrf_dense: scores and ranks"]
    assert list(printed) == ["ingest", "popularity: fit", *fits, "implicit", "publish"]


def test_a_row_has_its_times_its_limit_and_its_accuracy(printed):
    for what, limit in (("ingest", "bare read_csv"), ("mrf_dense: fit", "Cholesky, n^3")):
        row = printed[what]
        assert float(row["CPU s"]) > 0 and float(row["peak MB"]) > 50
        assert row["limit"] == limit and float(row["its CPU s"]) > 0 and float(row["ratio"]) > 0
    assert 0 < float(printed["mrf_dense: fit"]["nDCG@100"]) <= 1
    assert printed["publish"]["nDCG@100"] == printed["mrf_dense: fit"]["nDCG@100"]


def test_what_fails_or_is_absent_says_so(printed):
    assert printed["popularity: fit"]["s"].startswith("ValueError: made to fail")
    assert printed["implicit"]["s"].startswith("is not installed here")


def test_medians_spread_and_slope_from_the_smaller_log():
    smaller, size = LogSize(10**5, 60), LogSize(10**6, 60)
    runs = [
        Measurement("split", wall=one, cpu=one, peak_bytes=10**7, limit="a limit", limit_cpu=0.5)
        for one in (1.0, 3.0, 2.0)
    ]
    (line,) = table.format_rows(size, {"split": runs}, (smaller, {"split": [Measurement("split", cpu=0.2)]}))
    assert line.split(" | ")[2:] == [
        "2.00 (1.00 to 3.00)", "2.000 (1.000 to 3.000)", "10", "a limit", "0.5", "4", "1.00", "- |",
    ]  # fmt: skip


def test_a_process_that_dies_is_reported():
    (measurement,) = processes.run_in_process(os._exit, 3, seconds=60)
    assert measurement.error == "its process ended with 3"


def test_the_table_of_returns_has_all_lists_and_the_mixture_leads(monkeypatch, capsys):
    shop = repeats.Returns(repeats.DemoSettings(users=300, items=120, likes=4000), 0.8, median_gap=30, gap_sd=0.3)
    monkeypatch.setitem(repeats.GENERATED, "groceries", shop)
    monkeypatch.setattr("sys.argv", ["repeats", "--logs", "groceries"])
    repeats.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    means = {row[0]: float(row[1].partition(" ")[0]) for row in rows[2:]}
    assert {"popularity", "own counts, then popularity", "mrf_sparse", "repeat", "repeat_mixture"} <= set(means)
    assert means["repeat_mixture"] > 1.1 * means["own counts, then popularity"] > means["popularity"]
    for row in rows[2:-1]:
        difference = float(row[-1].split()[0])
        assert abs(means["repeat_mixture"] - means[row[0]] - difference) < 2e-4


@pytest.mark.slow
def test_publications_under_load_lose_and_mix_nothing(monkeypatch, capsys):
    short = ["--rate", "40", "--seconds", "5", "--publications", "3", "--items", "200", "--model", "popularity"]
    monkeypatch.setattr("sys.argv", ["serve_publications", *short])
    serve_publications.main()
    assert "200 requests in 5 s; lost 0, mixed 0; answered by 3 publications" in capsys.readouterr().out


def test_a_mixed_and_a_lost_answer_are_counted(capsys):
    expected = {"one": {"/a": ["i1"]}, "two": {"/a": ["i2"]}}
    answers = [("/a", "one", ["i1"]), ("/a", "one", ["i2"]), "status 500"]
    sender = serve_publications.Sender(0, 0, ["/a"], 1.0, 0.0, 1)
    sender.seconds, sender.late = [0.001, 0.002, 0.003], [0.0]
    serve_publications.print_report(answers, [sender], expected, 1.0)
    assert "lost 1 {'status 500': 1}, mixed 1; answered by 1 publications" in capsys.readouterr().out


def test_a_generated_log_is_cut_by_time():
    shop = repeats.Returns(repeats.DemoSettings(users=300, items=120, likes=4000), 0.8, median_gap=30, gap_sd=0.3)
    train, later = repeats.generate_log(shop, seed=2)
    ages = train.event_ages
    assert ages.days.min() >= 0 and (np.diff(ages.starts) == train.data).all()
    assert later.sum() == pytest.approx(0.1 * (train.sum() + later.sum()), rel=0.15)
    assert (train.getnnz(axis=0) > 0)[later.indices].all()
