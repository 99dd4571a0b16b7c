DELETE FROM "public".loose_foreign_keys_deleted_records AS tombstone
WHERE tombstone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT expired.ctid
    FROM "public".loose_foreign_keys_deleted_records AS expired
    WHERE expired.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
        SELECT revived.place
        FROM "sexton".revived AS revived
        WHERE revived.settled_at OPERATOR(pg_catalog.<) (
            pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(days => $1::int))
        ORDER BY revived.settled_at
        LIMIT $2
    ))
    FOR UPDATE SKIP LOCKED
))
