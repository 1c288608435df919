"""For whoever plans or checks a fleet; needs ``pip install 'nextapp[lab]'``."""
