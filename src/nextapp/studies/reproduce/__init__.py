"""Every table and figure of the paper anew, a verdict on each of its claims, and one report."""
