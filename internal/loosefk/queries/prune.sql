DELETE FROM "public".loose_foreign_keys_deleted_records AS tombstone
WHERE tombstone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT surplus.ctid
    FROM "public".loose_foreign_keys_deleted_records AS surplus
    WHERE surplus.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
        SELECT revived.place
        FROM "sexton".revived AS revived
        ORDER BY revived.settled_at DESC, revived.id DESC
        OFFSET $1
        LIMIT $2
    ))
    FOR UPDATE SKIP LOCKED
))
