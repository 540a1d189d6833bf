"""Markdown: what it makes, what it must not let through, and that a growing reply ends where a whole one does."""

from __future__ import annotations

import random
import re

import pytest

from app.markdown import Growing, render


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**b** *i* ~~s~~ `c`", "<p><strong>b</strong> <em>i</em> <s>s</s> <code>c</code></p>\n"),
        ("# one\n\n###### six", "<h3>one</h3>\n<h6>six</h6>\n"),
        ("3. x\n4. y", '<ol start="3">\n<li>x</li>\n<li>y</li>\n</ol>\n'),
        ("```\n<b>\n```", "<pre><code>&lt;b&gt;\n</code></pre>\n"),
        ("| a |\n|---|\n| 1 |", None),
    ],
)
def test_markdown(text: str, html: str | None) -> None:
    made = render(text)
    assert made == html if html is not None else "<td>1</td>" in made


def test_code_is_highlighted_by_classes() -> None:
    assert '<span class="k">def</span>' in render("```python\ndef f(): pass\n```")
    assert "<span" not in render("```no-such-language\ndef\n```")


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](vbscript:x)",
        "[x](/api/merge)",
        "[x](//evil.example)",
        "![x](http://evil.example/pixel.png)",
        "![x](javascript:alert(1))",
        "<javascript:alert(1)>",
        "[x]: javascript:alert(1)\n\n[x]",
        "<svg onload=alert(1)>",
        "<hx-partial hx-target='body'>x</hx-partial>",
        "<div hx-get='/' data-hx-get='/'>x</div>",
        "<style>*{display:none}</style>",
        '```" onclick="alert(1)\n x\n```',
        "```python\" onclick=\"alert(1)\n'</span><script>'\n```",
        '[x](http://a.example "\\" onclick=\\"alert(1)")',
        "<a href='javascript:alert(1)' id=status class=sheet style='position:fixed'>x</a>",
    ],
)
def test_nothing_active_comes_out(evil: str) -> None:
    settled, tail = Growing().add(evil)
    for html in (render(evil), settled + tail):
        tags = re.findall(r"<[^>]*>", html)
        assert not re.search(r"<(?!/?(p|a|strong|em|s|code|pre|span|br|h[3-6]|ol|ul|li)\b)", html)
        for tag in tags:
            assert not re.search(r"\s(on\w+|style|id|src|hx-[\w-]+|data-[\w-]+)\s*=", re.sub(r'"[^"]*"', '""', tag))
            address = re.search(r'href="([^"]*)"', tag)
            assert address is None or address[1].startswith(("http://", "https://", "mailto:"))


def test_links_leave_in_a_tab_of_their_own() -> None:
    assert render("[x](https://a.example)") == (
        '<p><a href="https://a.example" target="_blank" rel="noopener noreferrer nofollow">x</a></p>\n'
    )


TEXT = """A **flock** moves.

- one
- two *three*

```python
def f(x):

    return x
```

> quoted
> twice

| a | b |
|---|---|
| 1 | 2 |

The end\twith `code`."""


@pytest.mark.parametrize("seed", range(5))
def test_a_growing_reply_ends_as_the_whole_one(seed: int) -> None:
    draw, growing, left = random.Random(seed), Growing(), TEXT
    settled, tail, pieces = "", "", 0
    while left:
        size = draw.randint(1, 7)
        done, tail = growing.add(left[:size])
        settled, left, pieces = settled + done, left[size:], pieces + bool(done)
    words = re.compile(r"<[^>]*>|\s+")
    assert words.sub("", settled + tail) == words.sub("", render(TEXT))
    assert [m for m in re.findall(r"<(\w+)", settled + tail) if m != "span"] == [
        m for m in re.findall(r"<(\w+)", render(TEXT)) if m != "span"
    ]
    assert pieces == 5


def test_a_finished_block_is_not_made_again() -> None:
    growing = Growing()
    growing.add("first\n\nsec")
    settled, tail = growing.add("ond")
    assert settled == ""
    assert tail == "<p>second</p>\n"
