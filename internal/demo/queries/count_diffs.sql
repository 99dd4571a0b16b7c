-- What became of the diffs that were taken down. A diff may have gone with its merge request.
WITH taken AS (
    SELECT DISTINCT ON (taken.diff_id) request.id IS NULL AS requestless, diff.id IS NULL AS missing,
        diff.stored_externally IS NOT TRUE AS inside, known.skip_reason
    FROM demo.diffs AS taken
    LEFT JOIN "public".merge_requests AS request ON request.id = taken.merge_request_id
    LEFT JOIN "public".merge_request_diffs AS diff ON diff.id = taken.diff_id
    LEFT JOIN "sexton".external_diffs AS known ON known.diff_id = taken.diff_id
)
SELECT 'gone', 'diffs have gone with their merge requests', count(*), false FROM taken WHERE taken.missing AND taken.requestless
UNION ALL
SELECT 'lost', 'diffs are lost', count(*), true FROM taken WHERE taken.missing AND NOT taken.requestless
UNION ALL
SELECT 'in_database', 'diffs are in the database still', count(*), true FROM taken WHERE NOT taken.missing AND taken.inside AND taken.skip_reason IS NULL
UNION ALL
SELECT 'skipped', 'diffs cannot be moved', count(taken.skip_reason), false FROM taken
