"""What is measured, what is it called, where is it kept, and what can be asked of it?

Names in `semconv`, formulas in `metrics`, the allow-list in `redact`, spans out by `tracing`,
tables in `db`, questions in `queries`.  Imports no other package of this repository.
"""
