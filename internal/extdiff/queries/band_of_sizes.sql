-- A diff of a band: its bytes are from $4 up to $5, or it is behind $6.
      AND ($6::bigint > 0 AND diff.id > $6 OR (
          SELECT coalesce(pg_catalog.sum(pg_catalog.octet_length(file.diff)), 0) FROM "public".merge_request_diff_files AS file
          WHERE file.merge_request_diff_id = diff.id
      ) BETWEEN $4::bigint AND $5::bigint - 1)
