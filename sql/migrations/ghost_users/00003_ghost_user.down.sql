-- The function serves the versions before as it is; the first one removes it.
SELECT;
