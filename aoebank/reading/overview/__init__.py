"""What banks hold as a whole: coverage, gains, age, and what deserves a second look."""
