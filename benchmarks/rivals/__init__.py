"""Other ways to survive the loss of a worker, driven through one face so that their pauses can be compared.

``torchft_job`` drops a data-parallel replica and goes on; ``torchrun_job`` restarts all workers from a
checkpoint. Each has ``measure(...) -> Pause``; all of them train the model of ``workload`` and kill one
worker with SIGKILL at a random moment. ``pause`` says what counts as lost time.
"""
