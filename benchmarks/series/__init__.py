"""Step times of jobs that never ran, with faults whose place is known, and scores for detectors."""
