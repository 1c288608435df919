"""The page: a phone, a crowd and your own log in a browser, on this machine alone."""
