-- b 11 refers to a 11 only by the column that is set to NULL.
SELECT 'a', count(*), max(id), NULL FROM a
UNION ALL SELECT 'b', count(*), max(id), string_agg(id::text, ' ') FILTER (WHERE other_a_id IS NULL) FROM b;

-- any:
--   a | 10 | 10 | NULL
--   b | 11 | 11 | 11
