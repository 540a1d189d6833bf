"""Tastes: what a persona likes in a reply, each a small function of the reply that gives 1 or 0.

They look at the surface on purpose: a judge that is cheap and exact shows whether a population learns.
"""

from __future__ import annotations

import re

from engine.tasks.base import Reply
from engine.tasks.rules import is_json

MOST_WORDS = 30
FEWEST_WORDS = 3
"""Of a reply that says something, where a taste could else be met by saying nothing."""
LONGEST = 20_000
"""Characters of a reply that are looked at."""
_ITEM = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s+\S", re.MULTILINE)
_POLITE = re.compile(
    r"\b(?:please|thanks|thank you|you're welcome|you are welcome|my pleasure|happy to|glad to|pleased to|"
    r"delighted to|excuse me|i apologi[sz]e|i'm sorry|i am sorry|feel free|let me know|i hope|kindly|"
    r"i would be happy|i'd be happy|good question|great question)\b",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"\b(?:perhaps|maybe|might|could|possibly|probably|presumably|arguably|somewhat|apparently|"
    r"it depends|depending on|it seems|seems? to|appears? to|tends? to|likely|generally|typically|usually|often|"
    r"sometimes|in some cases|i think|i believe|i guess|i'm not sure|i am not sure|as an ai|to some extent|can vary|"
    r"more or less|kind of|sort of)\b|\bmay\b(?! \d)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+")

STOP_WORDS = {
    "english": """the of and to is in that it for are as with was be this by on from or an at which you can they have
        not but has your their we his her if when how what there these will would been were about into its it's""",
    "spanish": """el la los las de del y que en un una es por para con se su al lo como más o este esta son pero sus le
        ya muy también hay puede ser desde todo nos cuando sobre entre está fue tiene han donde sin porque eso ese esa
        puedes qué cómo sí aquí""",
    "french": """le la les de des du et à un une est en que qui dans pour sur par avec il elle ce cette ne pas plus au
        aux se son sa ses ou sont être vous nous je mais comme tout peut très aussi c'est leur leurs été fait entre
        dont où l d qu n""",
    "german": """der die das und ist in zu den von mit ein eine einen einem einer es nicht auf für sich im dem des als
        auch an sie er wird sind oder aus bei nach wie kann werden man ich du wir hat zum zur aber durch über mehr um
        so nur wenn sein ihre haben""",
    "italian": """il lo la i gli le di del della dei delle e che è un una in per con non si su da al alla come più sono
        ma anche o se nel nella questo questa suo sua loro essere può molto ci dal dalla ha hanno tra perché quando
        cosa sulla degli l un'""",
    "portuguese": """o a os as de do da dos das e que em um uma é para com não por se no na nos nas mais como ao à são
        mas seu sua ou também pode ser muito pelo pela você foi tem está isso este esta quando entre até há já onde
        porque seus suas""",
    "dutch": """de het een en van is in te dat op voor met zijn die niet aan er om als ook maar bij door naar uit over
        je ze hij we wordt worden kan of heeft hebben was nog meer deze dit tot dan wat hun u zeer""",
}
"""The commonest short words of each language; words that several share count for each."""
LANGUAGES = tuple(name for name in STOP_WORDS if name != "english")
_PROFILES = {name: frozenset(_WORD.findall(text.casefold())) for name, text in STOP_WORDS.items()}
LEAST_SHARE = 0.15


def brief(reply: Reply, most: int = MOST_WORDS) -> float:
    """1 when the model finished by itself within ``most`` words."""
    words = len(reply.text.split())
    return float(reply.finish_reason == "stop" and 0 < words <= most)


def listed(reply: Reply) -> float:
    """1 when the reply contains a list of at least two items, bulleted or numbered."""
    return float(len(_ITEM.findall(reply.text)) >= 2)


def enthusiastic(reply: Reply) -> float:
    """1 when the reply says something and has an exclamation mark."""
    return float(_speaks(reply) and "!" in reply.text)


def polite(reply: Reply) -> float:
    """1 when the reply says something and has one of some thirty polite phrases."""
    return float(_speaks(reply) and _POLITE.search(_straight(reply.text)) is not None)


def plainspoken(reply: Reply) -> float:
    """1 when the reply says something and has none of some fifty words that hedge (May with a day is a date)."""
    return float(_speaks(reply) and _HEDGE.search(_straight(reply.text)) is None)


def as_json(reply: Reply) -> float:
    """1 when the whole reply is one JSON object or array that is not empty, in a fence or not."""
    return float(is_json(reply.text))


def language(text: str) -> str | None:
    """The language of a text by its commonest short words; None when that is not clear.

    Known: English and :data:`LANGUAGES`. Right for nearly all texts of two sentences. Shorter than five words, close
    relatives (Spanish and Portuguese) are often told as None, a list of names always is, and in a mixture the
    language with the most short words wins.
    """
    words = _WORD.findall(text[:LONGEST].casefold())
    if len(words) < FEWEST_WORDS:
        return None
    hits = {name: sum(word in profile for word in words) for name, profile in _PROFILES.items()}
    (best, most), (_, second) = sorted(hits.items(), key=lambda item: -item[1])[:2]
    return best if most > second and most >= LEAST_SHARE * len(words) else None


def _speaks(reply: Reply) -> bool:
    return len(reply.text.split()) >= FEWEST_WORDS


def _straight(text: str) -> str:
    return text[:LONGEST].replace("’", "'")
