"""How good a synthetic table is: metrics that declare themselves, and the report.

Everything here looks at private rows without noise, so its results are private too, and no part of a release.
"""
