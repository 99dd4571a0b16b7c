SELECT
    (SELECT count(*) FROM unnest($1::bigint[]) AS gone (id) WHERE NOT EXISTS (SELECT FROM "public".users WHERE users.id = gone.id)),
    (SELECT count(*) FROM "public".import_placeholder_user_details AS detail WHERE detail.placeholder_user_id = ANY ($1) AND detail.last_error IS NOT NULL),
    (SELECT count(*) FROM "public".import_placeholder_user_details AS detail WHERE detail.placeholder_user_id = ANY ($1) AND detail.last_error IS NULL),
    (SELECT count(*) FROM demo.imported JOIN "public".notes AS note ON note.id = imported.id WHERE note.author_id IS DISTINCT FROM imported.author_id)
