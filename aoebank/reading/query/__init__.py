"""Ask banks in SQL: their files, records and side-cars as tables of a database in memory."""
