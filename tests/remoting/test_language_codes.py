"""The languages of peers."""

from __future__ import annotations

from trocket.remoting.language_codes import LanguageCode


def test_languages_have_rocketmqs_numbers() -> None:
    assert [(code.name, int(code)) for code in (LanguageCode.JAVA, LanguageCode.GO)] == [
        ("JAVA", 0),
        ("GO", 9),
    ]
    assert LanguageCode.PYTHON == 3
    assert LanguageCode.NODE_JS == 13


def test_every_language_fits_the_byte_of_a_rocketmq_header() -> None:
    assert all(0 <= code <= 127 for code in LanguageCode)
