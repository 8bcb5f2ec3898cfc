"""Puts a clock around somebody else's function, such that nothing of ours can come out of a call of it.

What fails in here is counted; what the function raises, an interrupt too, goes its way.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from holdfast.job.ring import CALLS, CHANNEL, SINCE
from holdfast.job.tally import REST, Tally

Function = Callable[..., Any]
Finder = Callable[[Any, Any], int]
"""Returns the number of the channel, from a call's arguments."""
After = Callable[[Any, int, Any], None]
"""Is told what a call returned, its channel and its arguments."""


def timed(
    function: Function, tally: Tally, find: Finder, *, calls: int = 1, after: After | None = None
) -> Function:
    """Return a function that communicates with a clock around it."""
    import torch

    get_ident, words = threading.get_ident, tally.words

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # First, since the compiler has to see the call itself and nothing else. (Not bound outside: torch
        # imports this part of itself later.)
        if torch.compiler.is_compiling() or tally.is_in_call or get_ident() != tally.thread:
            return function(*args, **kwargs)
        # All in one function: between calls the caches have seen a model pass by, and whatever else has to
        # be fetched again costs ten times what it does in a loop of its own.
        channel, began_ns, named_ns, result = REST, 0, 0, None
        try:
            channel = find(args, kwargs)
            tally.calls += 1
            words[CALLS] = tally.calls
            words[CHANNEL] = channel
            named_ns = tally.named_ns
            tally.is_in_call = True
            words[SINCE] = began_ns = tally.clock()
        except Exception:
            tally.errors += 1
        try:
            result = function(*args, **kwargs)
            return result
        finally:
            tally.is_in_call = False
            try:
                if began_ns:
                    waited_ns = tally.clock() - began_ns - tally.named_ns + named_ns
                    words[SINCE] = 0
                    tally.wait_ns += waited_ns
                    tally.named_ns += waited_ns
                    use = tally.uses.get(channel)
                    if use is None:
                        use = tally.uses[channel] = [0, 0, 0]
                    use[0] += waited_ns
                    use[1] += calls and size_bytes(args, kwargs)
                    use[2] += calls
                if after is not None and result is not None:
                    after(result, channel, args)
            except Exception:
                tally.errors += 1

    return call


def size_bytes(args: Any, kwargs: Any) -> int:
    """Return how many bytes a call moves, as far as its first argument tells."""
    try:
        return 0 + args[0].nbytes  # type: ignore[no-any-return]  # Of a tensor, the usual case.
    except (AttributeError, IndexError, TypeError):
        first = args[0] if args else next(iter(kwargs.values()), None)
    if isinstance(first, (list, tuple)):
        return sum(map(_nbytes, first))
    return _nbytes(first)


def _nbytes(thing: Any) -> int:
    found = getattr(thing, "nbytes", None)
    if found is None:  # A message of a batch has its tensor within; an object has none.
        found = getattr(getattr(thing, "tensor", None), "nbytes", 0)
    return found if isinstance(found, int) else 0
