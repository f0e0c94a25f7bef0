"""Checks between stages: Great Expectations suites, quarantine, Data Docs."""
