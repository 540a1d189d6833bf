"""Markdown of a model to HTML that can do nothing: no raw HTML, no images, no addresses but web and mail links.

``render`` makes a whole reply. :class:`Growing` follows one that is still being written: blocks that are finished are
handed out once, only the last one is rendered again with every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from pygments import highlight as pygments_highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

TEXT = {"p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "s", "a", "blockquote", "ul", "ol", "li"}
TAGS = TEXT | {"code", "pre", "span", "table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}
HIGHLIGHTED = 20_000
"""Characters of a code block above which it stays plain."""
_formatter = HtmlFormatter(nowrap=True)


def _highlighted(code: str, language: str, _attributes: str) -> str:
    if not language or len(code) > HIGHLIGHTED:
        return ""
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return ""
    return pygments_highlight(code, lexer, _formatter)


def _lower_headings(state: StateCore) -> None:
    """A reply is part of a page that has its own first and second level."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"


def _image_as_words(self: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    return self.renderInlineAsText(tokens[index].children or [], options, env)


def _parser(highlight: Any) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "highlight": highlight}).enable(["table", "strikethrough"])
    parser.core.ruler.push("lower_headings", _lower_headings)
    parser.add_render_rule("image", _image_as_words)
    return parser


_whole, _plain = _parser(_highlighted), _parser(None)
_cleaner = nh3.Cleaner(
    tags=TAGS,
    attributes=ATTRIBUTES,
    url_schemes=SCHEMES,
    url_relative="deny",
    link_rel="noopener noreferrer nofollow",
    allowed_classes={"span": set(filter(None, STANDARD_TYPES.values()))},
    set_tag_attribute_values={"a": {"target": "_blank"}},
)


def render(text: str) -> str:
    """Safe HTML of a whole reply."""
    return _cleaner.clean(_whole.render(text))


class Growing:
    """A reply that is being written."""

    def __init__(self) -> None:
        self._open = ""

    def add(self, text: str) -> tuple[str, str]:
        """Adds new text; returns (HTML of the blocks that this finished, HTML of the last, unfinished one)."""
        self._open += text.replace("\r", "")
        blocks = [t.map[0] for t in _plain.parse(self._open) if t.level == 0 and t.map and t.nesting >= 0]
        settled = ""
        if len(blocks) > 1:
            lines = self._open.split("\n")
            settled = render("\n".join(lines[: blocks[-1]]))
            self._open = "\n".join(lines[blocks[-1] :])
        return settled, _cleaner.clean(_plain.render(self._open))
