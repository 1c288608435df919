"""A fleet on a GPU: the same rounds, from the same bits, on one card.

`card` is the one module that knows CuPy; `step.cu` and `draws.cu` are the kernels. `reporting`
holds a fleet on a card and runs there what `nextapp.fleet.rounds` runs on the processor, which
chooses.
"""
