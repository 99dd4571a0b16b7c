CASE WHEN own THEN (
                SELECT coalesce(pg_catalog.sum(known.rows + known.left_out), 0)
                FROM "sexton".undo AS known
                WHERE known.id = origin AND NOT known.origins @> ARRAY[origin]
            ) ELSE 0 END
