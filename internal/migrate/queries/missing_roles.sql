-- Returns the current role, and the roles of $1 that do not exist. Empty names are
-- ignored.
SELECT current_user::pg_catalog.text, coalesce(pg_catalog.array_agg(pg_catalog.quote_ident(named.name)) FILTER (WHERE named.name <> '' AND role.oid IS NULL), '{}')
FROM pg_catalog.unnest($1::pg_catalog.text[]) AS named (name)
LEFT JOIN pg_catalog.pg_roles AS role ON role.rolname = named.name;
