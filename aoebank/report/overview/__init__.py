"""Tell what banks hold as a whole."""
