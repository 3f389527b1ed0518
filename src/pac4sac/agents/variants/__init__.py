"""Agents that go beyond a publication, one idea per file."""
