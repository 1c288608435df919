"""Predict the next app a person will launch, learnt across phones without any phone giving its
history away.

The base install needs NumPy alone and holds what a phone and its server run::

    wire        Broadcast (down) and Report (up): all that crosses, and its bytes
    model       the equations of the paper, for one phone
    randomness  where bits come from
    privacy     what a phone does to a gradient before it leaves
    device      one phone
    server      the app vectors, one step a round
    phone       a phone in one file that talks to a server; python -m nextapp.phone

Loading logs, measuring and their commands need ``pip install 'nextapp[lab]'``, a server
``pip install 'nextapp[serve]'``.
"""

__version__ = "0.1.0"
