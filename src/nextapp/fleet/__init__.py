"""Millions of phones as columns: compiled, and equal to the same phones one by one."""
