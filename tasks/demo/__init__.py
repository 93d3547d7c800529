"""The demo's log, made by the generative story of the random-graph paper.

`story` makes the likes and keeps the truth, `netflix_writer` writes them in the Netflix format.
"""

from oneclass.tasks.demo.story import DemoSettings, make_demo

__all__ = ["DemoSettings", "make_demo"]
