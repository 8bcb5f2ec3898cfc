"""Every error that Holdfast raises on purpose.

::

    HoldfastError
    ├── InputError         what a person gave us is wrong; the CLI prints one line and exits with 2
    │   └── MissingError   a tool, package or privilege that this machine lacks
    ├── JobError           the training job itself failed; the CLI exits with the job's own code
    ├── StoreError         a server's store could not keep or find something this time
    └── TrainingLostError  too much of a pipeline is gone for training to go on
"""


class HoldfastError(Exception):
    """Base of all errors raised on purpose."""


class InputError(HoldfastError):
    """Input that cannot be used; the message names the place, the value and what was expected."""


class MissingError(InputError):
    """Something this machine lacks; the message says how to get it."""


class JobError(HoldfastError):
    """A training job that failed, with the exit code that the caller should return."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StoreError(HoldfastError):
    """A store that failed in its own world (a full disk, a lost connection); nothing was half kept."""


class TrainingLostError(HoldfastError):
    """Training cannot go on in this process; the message says what was lost."""
