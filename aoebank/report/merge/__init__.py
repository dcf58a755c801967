"""What a merge decided and wrote."""
