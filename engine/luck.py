"""How much of a fitness spread is signal, and how much is luck of data and sampling.

    signal = max(0, Var_between − mean_i(s² / n_i))          share = signal / Var_between

Var_between is the variance (ddof 1) of the members' mean rewards, s² the variance of one reply within a member, n_i the
member's rated replies. With one reply a member s² cannot be seen, so it is taken from the mean reward m as m (1 − m),
the most that rewards in 0..1 with that mean can vary.
"""

from __future__ import annotations

import math

import numpy as np

KEEP = 0.8
"""Weight of the past in the running signal share."""


def signal_share(fit: np.ndarray, counts: np.ndarray) -> float | None:
    """Share of the spread of ``fit`` (N,) that is signal, 0..1; ``counts`` (N,) are the rated replies.

    None when fewer than two members are rated or nothing spreads.
    """
    ok = counts > 0
    if ok.sum() < 2:
        return None
    f, n = fit[ok], counts[ok]
    between = float(f.var(ddof=1))
    if between <= 1e-12:
        return None
    mean = float((f * n).sum() / n.sum())
    within = max(0.0, mean * (1.0 - mean)) * float((1.0 / n).mean())
    return max(0.0, between - within) / between


def running_share(previous: float, share: float | None) -> float:
    """Exponential average of the share; a merge without spread says nothing about it."""
    return previous if share is None else KEEP * previous + (1.0 - KEEP) * share


def shrink(share: float) -> float:
    """Factor on α of a luck-shrunk step: the root of the running signal share.

    The z-score makes every step equally long; only the signal's part of that length points anywhere.
    """
    return math.sqrt(min(1.0, max(0.0, share)))
