"""Agents: the roles of a conversation, and the policies that write them."""
