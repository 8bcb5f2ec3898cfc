"""The verbs with their flags and help; what they do is in modules that they import when called."""
