"""The demo's log, simulated by the generative model of the random-graph paper.

`story` simulates the likes and stores the truth, `netflix_writer` writes the log in the Netflix format.
"""

from oneclass.tasks.demo.story import DemoSettings, make_demo

__all__ = ["DemoSettings", "make_demo"]
