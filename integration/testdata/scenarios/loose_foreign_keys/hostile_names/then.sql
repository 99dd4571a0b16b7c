SELECT "from" FROM "sel.ect" ORDER BY 1;

-- any:
--   2
--   3
