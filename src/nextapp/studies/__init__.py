"""Experiments: settings, tuning, results, figures."""
