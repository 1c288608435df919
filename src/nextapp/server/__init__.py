"""Phones, gateways and a coordinator: the system for real.

`gateway` takes reports over HTTP, `vault` keeps them durably until the round closes and reduces
them to one tally, `federation` owns the learner, the clock of the rounds and the checkpoints,
`listening` runs all of it in one process, `folders` opens and looks after what is on disk.
"""
