"""The papers' figures on rows made for them: who is called best, degrees of zero, and densities of `like` over r."""

import json

import numpy as np
import pytest

from oneclass.tasks.report import figures_likes, figures_papers, figures_ranks, plotting

BINS = [(0, 0), (1, 1), (2, 3), (4, 7)]
EDGES = 10


@pytest.fixture(autouse=True)
def _style():
    with plotting.plot_style():
        yield


def panel_lines(panel):
    return {line.get_label(): np.asarray(line.get_xydata()) for line in panel.axes.lines if line.get_label()[0] != "_"}


def rank_rows(model: str, score: str, mean_rank: float) -> list[dict]:
    """Rows of `evaluation.ranks_by_degree`, with the same mean rank in every bin of both sides."""
    return [
        {"model": model, "score": score, "side": side, "degree_low": low, "degree_high": high, "edges": EDGES,
         "mean_rank": mean_rank}
        for side in ("user", "item") for low, high in BINS
    ]  # fmt: skip


def refit_rows(model: str, varied: dict, score: str, value: float) -> list[dict]:
    """Rows of `evaluation.sweeps` with their settings: the mean rank over all held-out likes, and in every bin."""
    common = {"model": model, "settings": json.dumps(varied), "score": score, "metric": "mean_rank", "value": value,
              "users": EDGES, "standard_error": None}  # fmt: skip
    return [
        common | varied | {"side": side, "degree_low": low, "degree_high": high}
        for side, low, high in [(None, None, None), *((side, *bin_) for side in ("user", "item") for bin_ in BINS)]
    ]


def share_rows(r: float, degree: tuple[int, int], histogram: list[int]) -> list[dict]:
    """Rows of `evaluation.sweeps`: the shares of the bins of `like` that are not empty."""
    return [
        {"model": "paired_symbols", "settings": json.dumps({"r": r}), "score": "like", "side": "user",
         "degree_low": degree[0], "degree_high": degree[1], "metric": f"like_share@{place / 20:.2f}",
         "value": count / sum(histogram), "users": sum(histogram)}
        for place, count in enumerate(histogram) if count
    ]  # fmt: skip


REFITS = refit_rows("random_graph", {"r": 0.5}, "like", 0.88) + refit_rows("random_graph", {"r": 1.0}, "like", 0.87)


def test_the_best_line_of_figure_6_may_be_a_baseline():
    named = {"best": rank_rows("bpr_uniform", "score", 0.95), "worse": rank_rows("bpr_uniform", "score", 0.8)}
    said = {name: figures_papers.draw_ranks_by_degree(REFITS, rows).see for name, rows in named.items()}
    assert said == {
        "best": "Over all held-out likes bpr_uniform is best, 0.9500; of the paper's own scores like with r = 1/2, "
        "0.8800.",
        "worse": "Over all held-out likes like with r = 1/2 is best, 0.8800.",
    }


def test_the_papers_figure_6_has_no_items_without_likes_and_the_runs_own_labels_them():
    ranks = rank_rows("popularity", "score", 0.7)
    for panel in figures_papers.draw_ranks_by_degree(REFITS, ranks).panels:
        assert all(points[:, 0].min() >= 1 for points in panel_lines(panel).values()) and "popularity" in panel_lines(
            panel
        )
    for panel in figures_ranks.draw_rank_overview(ranks, {"popularity": "score"}).panels:
        axis = panel.axes.xaxis
        labels = dict(zip(axis.get_major_formatter().format_ticks(axis.get_majorticklocs()), axis.get_majorticklocs()))
        assert labels["0"] == panel_lines(panel)["popularity"][0, 0] == 0.5 and labels["1"] == 1


def test_figure_2_of_paired_symbols_is_one_picture():
    ranks = (
        rank_rows("paired_symbols", "like", 0.99)  # not its eq. 11
        + rank_rows("paired_symbols", "popularity_x_like", 0.92)
        + rank_rows("random_graph", "like", 0.9)
        + rank_rows("random_graph", "popularity_x_like", 0.93)
        + rank_rows("random_graph", "popularity_x_odds", 0.98)  # not the paper's
        + rank_rows("bpr_uniform", "score", 0.94)
    )
    figure = figures_papers.draw_paired_ranks(ranks)
    (panel,) = figure.panels
    heights = {label: set(points[:, 1]) for label, points in panel_lines(panel).items()}
    assert heights == {
        "paired_symbols": {0.92}, "random_graph: like": {0.9}, "random_graph: popularity × like": {0.93},
        "bpr_uniform": {0.94},
    }  # fmt: skip
    assert "bpr_uniform is best, 0.9400; of the paper's own scores paired_symbols, 0.9200" in figure.see
    assert not figures_papers.draw_paired_ranks(rank_rows("bpr_uniform", "score", 0.94)).panels


def test_figure_4_of_paired_symbols_has_a_panel_for_each_r():
    low, high = [4, *[0] * 18, 1], [1, *[0] * 18, 4]
    refits = [*share_rows(2.0, (3, 3), low), *share_rows(0.5, (3, 3), high), *share_rows(0.5, (41, 63), low),
              *share_rows(8.0, (3, 3), low), *REFITS]  # fmt: skip
    figure = figures_likes.draw_censored_histograms(refits)
    assert [panel.axes.get_title(loc="left") for panel in figure.panels] == ["r = 1/2", "r = 2"]
    assert "one half or more: 80" in figure.see and "r = 1/2 and 20" in figure.see
    for panel, darkest in zip(figure.panels, (0.95, 0.0), strict=True):
        patch = max(panel.axes.patches, key=lambda patch: patch.get_alpha())
        assert patch.get_path().vertices[0].tolist() == pytest.approx([2.5, darkest])


def like_rows(model: str, histogram: list[int]) -> list[dict]:
    return [{"model": model, "degree_low": 3, "degree_high": 3, "edges": sum(histogram),
             "error": sum(histogram[:10]) / sum(histogram), "histogram": histogram}]  # fmt: skip


def test_a_probability_over_all_entries_is_no_like_given_considered():
    rows = like_rows("binary_matrix", [50] + [0] * 19) + like_rows("random_graph", [0] * 10 + [5] * 10)
    errors, histograms = figures_likes.draw_errors(rows), figures_likes.draw_histograms(rows)
    assert set(panel_lines(errors.panels[0])) == {"random_graph"} and len(histograms.panels) == 1
    assert errors.panels[0].axes.get_ylim()[1] < 0.6
    assert all("binary_matrix is left out" in figure.how for figure in (errors, histograms))
    alone = figures_likes.draw_errors(rows[:1])
    assert not alone.panels and alone.absent
