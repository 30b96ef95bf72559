"""SQL92 expressions, by which a consumer chooses messages beyond tags. All pure.

`expression.py` is what others use; `parser.py`, `operands.py` and `java_values.py` are its parts.
"""
