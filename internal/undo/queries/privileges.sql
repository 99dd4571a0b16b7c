-- Returns the privileges that the role $3, or the current role if $3 is empty, lacks. $1 (tables) and $2 (privileges) are parallel lists. Tables are
-- named as in SQL, with their schemas. They are searched in the catalog, because to_regclass needs a privilege on the schema.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name, pg_catalog.string_agg(DISTINCT one.privilege, ', ') AS privileges,
    pg_catalog.format('GRANT %s ON TABLE %I.%I TO %I', pg_catalog.string_agg(DISTINCT one.privilege, ', '), n.nspname, c.relname, r.rolname) AS statement
FROM pg_catalog.pg_roles AS r
CROSS JOIN ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) AS w (name, privileges)
CROSS JOIN LATERAL pg_catalog.parse_ident(w.name) AS parts
JOIN pg_catalog.pg_namespace AS n ON n.nspname = parts[1]
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = parts[2]
CROSS JOIN LATERAL pg_catalog.unnest(pg_catalog.string_to_array(w.privileges, ', ')) AS one (privilege)
WHERE r.rolname = CASE $3::pg_catalog.text WHEN '' THEN current_user ELSE $3 END
  AND NOT pg_catalog.has_table_privilege(r.rolname, c.oid, one.privilege)
GROUP BY n.nspname, c.relname, r.rolname
ORDER BY name
