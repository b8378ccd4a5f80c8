"""Tests of recordings of servers."""
