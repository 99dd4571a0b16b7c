-- Returns the statements that drop what the registry lists for the component $1 and what is there: of tables and views only $2, of columns and indexes only
-- those of table $3. A rule that the application has put in the place of Sexton's stays.
WITH listed AS (
    SELECT o.kind, o.identity, part.name,
        pg_catalog.to_regclass(CASE WHEN o.kind IN ('column', 'trigger') THEN pg_catalog.substring(o.identity, '^(.*)[.]') ELSE o.identity END) AS relation
    FROM "sexton".objects AS o
    CROSS JOIN LATERAL (SELECT pg_catalog.substring(o.identity, '[^.]*$') AS name) AS part
    WHERE o.component = $1 AND o.kind IN ('trigger', 'view', 'table', 'column', 'index')
), drops AS (
    SELECT 1 AS place, pg_catalog.format('DROP TRIGGER %I ON %s', trigger.tgname, listed.relation) AS statement
    FROM listed
    JOIN pg_catalog.pg_trigger AS trigger ON trigger.tgrelid = listed.relation AND trigger.tgname = listed.name
    WHERE listed.kind = 'trigger' AND pg_catalog.starts_with(listed.name, 'sexton_')
    UNION ALL
    SELECT 2, 'DROP VIEW ' || listed.relation FROM listed WHERE listed.kind = 'view' AND listed.identity = ANY ($2::pg_catalog.text[])
    UNION ALL
    SELECT 3, 'DROP TABLE ' || pg_catalog.string_agg(listed.relation::pg_catalog.text, ', ')
    FROM listed
    WHERE listed.kind = 'table' AND listed.identity = ANY ($2::pg_catalog.text[])
    UNION ALL
    SELECT 4, pg_catalog.format('ALTER TABLE IF EXISTS %s DROP COLUMN IF EXISTS %I', listed.relation, listed.name)
    FROM listed
    WHERE listed.kind = 'column' AND listed.relation = pg_catalog.to_regclass($3)
    UNION ALL
    SELECT 5, 'DROP INDEX IF EXISTS ' || listed.relation
    FROM listed
    JOIN pg_catalog.pg_index AS index ON index.indexrelid = listed.relation AND index.indrelid = pg_catalog.to_regclass($3)
    WHERE listed.kind = 'index'
    UNION ALL
    SELECT 6, 'DROP FUNCTION ' || pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::pg_catalog.text, ', ')
    FROM "sexton".objects AS o
    JOIN pg_catalog.pg_proc AS p ON p.oid = pg_catalog.to_regprocedure(o.identity)
    WHERE o.kind = 'function' AND o.component = $1
      AND (p.proname <> 'may_remove_group' OR p.prosrc = 'SELECT "sexton".default_may_remove_group(user_id, group_id)')
)
SELECT coalesce(pg_catalog.string_agg(drops.statement, E';\n' ORDER BY drops.place), 'SELECT') FROM drops;
