"""Draw all figures of the page. Importing this module loads matplotlib, which takes a second."""

from collections.abc import Mapping

from oneclass.tasks.report import figures_degrees, figures_likes, figures_ranks
from oneclass.tasks.report.drawn import DrawnFigure
from oneclass.tasks.report.plotting import Figure, plot_style, render_svg
from oneclass.tasks.report.rows import Row


def render_figures(rows: Mapping[str, list[Row]], scores: dict[str, str]) -> dict[str, list[DrawnFigure]]:
    """Draw every figure, by section.

    Args:
        rows: of each of `drawn.QUERIES`.
        scores: the best score of each model, the best model first.
    """
    with plot_style():
        return {
            section: [_render_figure(figure) for figure in figures]
            for section, figures in draw_figures(rows, scores).items()
        }


def _render_figure(figure: Figure) -> DrawnFigure:
    return DrawnFigure(
        figure.name,
        figure.heading,
        figure.see,
        figure.how,
        figure.table,
        figure.absent,
        figure.size,
        {panel.name: render_svg(panel) for panel in figure.panels},
    )


def draw_figures(rows: Mapping[str, list[Row]], scores: dict[str, str]) -> dict[str, list[Figure]]:
    """Draw every figure as `render_figures` does, without rendering; call it under `plotting.plot_style`."""
    ranks, likes = rows["ranks_by_degree"], rows["like_by_degree"]
    dislikes = rows["dislike_by_degree"]  # empty without explicit negatives
    return {
        "for_whom": [
            figures_ranks.draw_rank_overview(ranks, scores),
            figures_ranks.draw_other_models(ranks, scores),
            figures_ranks.draw_score_variants(ranks, scores),
            figures_ranks.draw_percentiles(ranks, scores),
            figures_ranks.draw_both_degrees(rows["ranks_by_both_degrees"], scores),
        ],
        "certainty": [
            figures_likes.draw_errors(likes),
            *([figures_likes.draw_errors(dislikes, figures_likes.DISLIKE_CLASS)] if dislikes else []),
            figures_likes.draw_histograms(likes),
            *([figures_likes.draw_histograms(dislikes, figures_likes.DISLIKE_CLASS)] if dislikes else []),
            figures_likes.draw_calibration(rows["calibration"]),
        ],
        "degrees": [
            figures_degrees.draw_degree_distributions(rows["degrees"], rows["laws"]),
            figures_degrees.draw_hidden_graph_ratios(rows["hidden_graph_ratios"]),
        ],
    }
