"""The error tree as its docstring draws it."""

from __future__ import annotations

import pickle

import pytest

from holdfast.errors import HoldfastError, InputError, JobError, MissingError


def test_the_tree_is_as_drawn() -> None:
    """One base; a missing tool is bad input; a failed job is not."""
    assert [kind.__bases__ for kind in (InputError, MissingError, JobError)] == [
        (HoldfastError,),
        (InputError,),
        (HoldfastError,),
    ]


def test_a_job_error_carries_the_jobs_code() -> None:
    """The caller returns it."""
    error = JobError("it failed", exit_code=137)
    assert (str(error), error.exit_code) == ("it failed", 137)


@pytest.mark.parametrize("error", [InputError("x"), MissingError("y")])
def test_errors_survive_pickling(error: HoldfastError) -> None:
    """They may cross processes."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes.
    assert (type(again), str(again)) == (type(error), str(error))
