"""Millions of phones as columns: compiled, and equal to the same phones one by one."""

# A fleet is always compiled: that Numba is missing is found before any work starts.
import nextapp.machine_code  # noqa: F401
