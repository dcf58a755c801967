"""The store of snapshots beside a bank: `<root>/.aoebank/history.db`."""
