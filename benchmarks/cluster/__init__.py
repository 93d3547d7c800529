"""A simulated cluster: what a pass of each model would take on many machines.

`events` is the discrete-event model, `rates` what this machine was measured at, `plans` what each model computes, sends and
keeps; `benchmarks.cluster_simulation` brings them together.
"""
