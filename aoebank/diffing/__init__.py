"""Compare two banks record by record: pair the files, pair the records, judge the times."""
