"""Rules that a person types are read exactly, judge what they say, and no pattern hangs or fills the memory."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.tasks import Reply, TaskError
from engine.tasks.patterns import LONGEST_PATTERN, Pattern, PatternError
from engine.tasks.rules import LONGEST_RULE, is_json, parse


@pytest.mark.parametrize(
    ("rule", "reply", "finish_reason", "reward"),
    [
        ("at most 3 words", "one two three", "stop", 1.0),
        ("at most 3 words", "one two three four", "stop", 0.0),
        ("at most 3 words", "one two", "length", 0.0),
        ("at most 3 words", "  ", "stop", 0.0),
        ("at least 2 words", "one", "stop", 0.0),
        ("at least 2 words", "one two", "length", 1.0),
        ('contains "Please"', "If you PLEASE.", "stop", 1.0),
        ('contains "please"', "No.", "stop", 0.0),
        ('avoids "maybe"', "Maybe so.", "stop", 0.0),
        ('avoids "maybe"', "It is so.", "stop", 1.0),
        ('avoids "maybe"', "", "stop", 0.0),
        ('starts with "well"', " Well, yes", "stop", 1.0),
        ('ends with "?"', "Is it? \n", "stop", 1.0),
        ('ends with "?"', "Is it?", "length", 0.0),
        (r"matches /^\d+ (apples|pears)$/", "12 pears", "stop", 1.0),
        (r"matches /^\d+ (apples|pears)$/", "12 Pears", "stop", 0.0),
        (r"matches /^\d+ (apples|pears)$/i", "12 Pears", "stop", 1.0),
        (r"matches /a\/b/", "a/b", "stop", 1.0),
        ("is json", '{"a": 1}', "stop", 1.0),
        ("is json", "{a: 1}", "stop", 0.0),
        ('AT MOST 4 words AND contains "and" and is json', '["and"]', "stop", 1.0),
        (r'contains "say \"a and b\" \\ now"', 'say "a and b" \\ now', "stop", 1.0),
    ],
)
def test_a_rule_judges_what_it_says(rule: str, reply: str, finish_reason: str, reward: float) -> None:
    read = parse(rule)
    assert read.judge(Reply(reply, finish_reason)) == reward
    again = parse(str(read))
    assert str(again) == str(read)
    assert again.judge(Reply(reply, finish_reason)) == reward


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("", "empty"),
        ("be nice", "clause 1 .*'be nice'"),
        ("at most 3 words and be nice", "clause 2 .*'be nice'"),
        ("at most 3 words or is json", "after clause 1"),
        ("at most 3 words and", "after clause 1"),
        ("at most -3 words", "clause 1"),
        ("at most 0 words", "no words"),
        ("at most 1000000 words", "clause 1"),
        ('contains ""', "empty text"),
        ('contains "a', "clause 1"),
        ("matches /(/", "clause 1 .*not valid"),
        ("matches /[a-/", "clause 1 .*not valid"),
        ("matches //", "clause 1"),
        (f"matches /{'a' * (LONGEST_PATTERN + 1)}/", "at most 500"),
        ("is json and " * 30 + "is json", "more than 20"),
        (" and ".join(["matches /a/"] * 5), "at most 4"),
        ("x" * (LONGEST_RULE + 1), "at most 2,000"),
    ],
)
def test_a_rule_that_cannot_be_read_names_the_clause(rule: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        parse(rule)


@pytest.mark.parametrize("pattern", ["(a|aa)+$", r"(a+)+b\1$", "(a+a+)+b", "(?:(?R)|a)+b", "(.*a){12}b"])
def test_a_pattern_that_never_ends_scores_0_in_time(pattern: str) -> None:
    rule = parse(f"matches /{pattern}/")
    started = time.monotonic()
    assert rule.judge(Reply("a" * 5_000 + "c", "stop")) == 0.0
    assert time.monotonic() - started < 1.0


@pytest.mark.parametrize(
    "pattern",
    [
        "((((a{500}){500}){500}){500})",
        "(?:a{1000}){1000}",
        "a{100000000}",
        "a{1,100000000}",
        "(?x)(?: a { 500 } ) { 500 }",
        "(a{٩٩٩}){٩٩٩}",
        "(" * 250 + ")" * 250,
        "(?:" * 120 + "a" + "){9}" * 120,
        "a" * (LONGEST_PATTERN + 1),
        "\\",
        "(?<=a",
        "\\p{Nothing}",
        "(?P<n>a)(?P=m)",
        "a" * 3 + "{999999}" * 40,
    ],
)
def test_a_pattern_that_cannot_be_run_is_refused_at_once(pattern: str) -> None:
    started = time.monotonic()
    with pytest.raises(PatternError):
        Pattern(pattern)
    assert time.monotonic() - started < 0.5


@pytest.mark.parametrize("pattern", [r"^\d{4}-\d{2}-\d{2}$", r"^(\w+\W+){0,30}\w+$", r"[a-z]{3,200}", r"\(\{1,2\}\)"])
def test_usual_patterns_are_taken(pattern: str) -> None:
    Pattern(pattern)


@example("(?" + "x)", "x")
@example("a{,}{1}{2", "a")
@settings(deadline=None)
@given(st.text(alphabet="ab()[]{}*+?|\\^$.,0123456789:=!<>PRx ", max_size=60), st.text(max_size=200))
def test_any_pattern_is_refused_or_ends(pattern: str, text: str) -> None:
    started = time.monotonic()
    with contextlib.suppress(PatternError):
        Pattern(pattern).found(text)
    assert time.monotonic() - started < 1.0


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_rule_or_a_task_error(text: str) -> None:
    try:
        rule = parse(text)
    except TaskError:
        return
    assert str(parse(str(rule))) == str(rule)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('{"a": [1, 2]}', True),
        (' ["a"]\n', True),
        ('```json\n{"a": 1}\n```', True),
        ("```\n[1]\n```", True),
        ("{}", False),
        ("[]", False),
        ("3", False),
        ('"text"', False),
        ('Here: {"a": 1}', False),
        ('{"a": 1} {"b": 2}', False),
        ('{"a": 1', False),
        ("[" * 9_000 + "]" * 9_000, False),
        ("[" * 100_000, False),
        ("[" + "9" * 5_000 + "]", False),
        ("``````", False),
        ("```", False),
        ("", False),
    ],
)
def test_json_is_the_whole_reply(text: str, good: bool) -> None:
    assert is_json(text) is good
