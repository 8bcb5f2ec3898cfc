"""Jobs that hang on purpose: simulated, and recorded as the Flight Recorder would."""
