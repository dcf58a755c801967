"""Tell what banks hold: files, records, answers to queries."""
