"""Privacy mechanisms, which randomise a report before it leaves the phone, and their guarantees.

A mechanism has two sides, ``encode`` (phone) and ``decode`` (server). There is one file for each::

    from nextapp.privacy import mechanism
    m = mechanism("walsh", epsilon=4.5, n_apps=87, d=16, clip=1.0)
    report = m.encode(F, bits, round=0)   # bits: SystemBits() on a phone
    mean = m.decode([report, ...])        # estimate of the mean of the clipped gradients
    m.guarantee

Mechanisms take gradients, or `nextapp.crowd.Shares` of the same shape, which they clip; `walsh` is
designed for the shares of a large catalogue.
"""

from nextapp.privacy.mechanism import MECHANISMS as MECHANISMS
from nextapp.privacy.mechanism import FiniteMechanism as FiniteMechanism
from nextapp.privacy.mechanism import Guarantee as Guarantee
from nextapp.privacy.mechanism import Mechanism as Mechanism
from nextapp.privacy.mechanism import find_class as find_class
from nextapp.privacy.mechanism import mechanism as mechanism
from nextapp.privacy.mechanism import requested_mechanism as requested_mechanism
from nextapp.privacy.mechanism import requested_shape as requested_shape
