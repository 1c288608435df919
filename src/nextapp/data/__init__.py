"""Launch logs: `log`, `loading`, imports of people's devices, `synthetic` phones, `cutting`.

A phone uses `nextapp.data.importers` and `times` with only the standard library.
"""
