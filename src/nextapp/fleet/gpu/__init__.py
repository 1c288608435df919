"""A fleet on a GPU: the same rounds, from the same bits, on one card.

`card` is the one module that knows CuPy; `step.cu`, `draws.cu` and `vectors.cu` are the kernels.
`resident` holds a fleet on a card; `reporting`, `transition_vectors` and `walsh` play there what
their namesakes in `nextapp.fleet` play on the processor, and `card_fleet` is the front of them.
"""
