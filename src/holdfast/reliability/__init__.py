"""The long view: what a cluster's own records say about failures, lost time and bad nodes."""
