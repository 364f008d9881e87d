"""Conversation with a running agent."""
