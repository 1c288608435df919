"""Reproduces every table and figure of the paper, with a verdict on each claim, in a report."""
