"""A fleet on a GPU: the same rounds, from the same bits, on one card.

`card` is the one module that knows CuPy; `step.cu`, `draws.cu` and `vectors.cu` are the kernels.
`resident` holds a fleet on a card. `reporting` and `vectors` run there what `nextapp.fleet` runs
on the processor; `nextapp.fleet.rounds` chooses.
"""
