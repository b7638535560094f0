"""Text that every store can keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.text import NAME_LIMIT, clean, flaw, name_flaw

anything = st.text(st.characters() | st.characters(categories=["Cs"]) | st.just("\0"))


@given(anything)
def test_a_text_without_flaw_can_be_written_as_utf_8_and_holds_no_nul(text: str) -> None:
    if flaw(text) is None:
        assert text.encode().decode() == text
        assert "\0" not in text


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_ordinary_text_has_no_flaw_and_is_cleaned_to_itself(text: str) -> None:
    assert flaw(text) is None
    assert clean(text, len(text)) == text


@given(anything, st.integers(0, 200))
def test_cleaned_text_can_be_stored(text: str, limit: int) -> None:
    assert flaw(clean(text, limit)) is None


@given(anything, st.integers(60, 200))
def test_cleaned_text_keeps_within_its_limit(text: str, limit: int) -> None:
    assert len(clean(text, limit)) <= limit


def test_a_flaw_is_named_with_its_place() -> None:
    assert "NUL character at position 1" in str(flaw("a\0"))
    assert "surrogate '\\ud800' at position 2" in str(flaw("ab\ud800"))


def test_a_cut_is_noted() -> None:
    assert clean("x" * 1000, 100).endswith("… cut: 1000 characters, 100 kept")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("x" * (NAME_LIMIT + 1), "limit"),
        ("a\0", "NUL"),
        ("\udfff", "surrogate"),
        (7, "expected str, got int"),
        (None, "expected str, got NoneType"),
    ],
)
def test_what_cannot_be_a_name_is_told_why(name: object, reason: str) -> None:
    assert reason in str(name_flaw(name))


@pytest.mark.parametrize("name", ["a", "x" * NAME_LIMIT, "größe", "user:42", " "])
def test_other_texts_can_be_names(name: str) -> None:
    assert name_flaw(name) is None
