"""Tests of what an agent is: no process, no network, no clock."""
