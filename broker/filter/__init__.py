"""What decides which messages a consumer wants, beyond tags: SQL92 expressions. All pure.

sql92.py is what others use; parser.py, operands.py and java_values.py are its parts. bloom.py holds
what consume queue extensions remember of an expression's results.
"""
