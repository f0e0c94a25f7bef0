"""Inspection: figures of a call, issues that slow it down with remedies, and failures explained."""
