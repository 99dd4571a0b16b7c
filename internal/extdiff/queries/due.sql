-- Reports whether there are due diffs in the window after the position of the last run.
EXISTS (
    SELECT
    FROM (
        SELECT diff.id
        FROM "public".merge_request_diffs AS diff
        WHERE {in_database}
          AND diff.id > coalesce((
              SELECT cursor.after_id FROM "sexton".external_diff_cursors AS cursor WHERE cursor.rule = '{cursor}'
          ), 0)
        ORDER BY diff.id
        LIMIT {window}
    ) AS scanned
    JOIN "public".merge_request_diffs AS diff ON diff.id = scanned.id
    WHERE {eligible}
      AND NOT {refused}
)
