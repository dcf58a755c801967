"""The `aoebank` command."""
