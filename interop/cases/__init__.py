"""The cells of the harness as pytest tests, and the call that runs them.

`trocket interop run` calls pytest on this package (`call`). By hand it is
`pytest -p trocket.interop.cases.plugin --pyargs trocket.interop.cases --interop-kind oracle`.
"""
