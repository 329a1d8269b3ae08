"""The asking format: where developers ask, and what they accept."""

import random

import pytest

from harness.tiny.asking import CONTEXT_CHARACTERS, accepted, question_at, random_questions, visible

TEXT = "import os\n\n\ndef name(path):\n    return os.path.basename(path)\n" * 20


@pytest.mark.parametrize(
    ("answer", "following", "wanted"),
    [
        ("return os", "return os.path", True),
        (" os", " os.path", False),  # two visible characters are not worth a key
        ("return sys", "return os.path", False),
        ("return os.path!", "return os.path", False),
        ("", "return", False),
        ("\n    ret", "\n    return", True),
    ],
)
def test_accepted(answer: str, following: str, wanted: bool) -> None:
    assert accepted(answer, following) is wanted


def test_a_question_is_the_text_around_its_point() -> None:
    question = question_at("m.py", TEXT, 400)
    assert question.context + question.following == TEXT[400 - CONTEXT_CHARACTERS : 400 + CONTEXT_CHARACTERS]
    assert question.prompt == question.context + "<ask>"


def test_random_questions_depend_on_the_seed_alone() -> None:
    one, again, other = (random_questions("m.py", TEXT, 10, random.Random(seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert all(visible(question.following) >= 3 for question in one)


def test_a_file_too_short_to_ask_in_gives_no_questions() -> None:
    assert random_questions("m.py", "x", 10, random.Random(0)) == []
