"""Audits of privacy mechanisms, attacks, comparisons and accounting; needs 'nextapp[lab]'."""
