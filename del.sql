\set n :n + 1
\set i :n * 32 + :client_id
DELETE FROM parents WHERE id = :i;
