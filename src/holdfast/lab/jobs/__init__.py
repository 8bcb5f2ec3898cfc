"""Training jobs that know nothing of Holdfast: what a person would run under torchrun."""
