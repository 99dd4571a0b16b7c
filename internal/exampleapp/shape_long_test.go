//go:build long

package exampleapp

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// claim is what the data promises to whoever shows or tests something on it. The query returns whether it holds.
type claim struct{ holds, query string }

func TestLoadedDataHasTheShapeOfAnApplication(t *testing.T) {
	t.Parallel()
	d := empty(t)
	made := pgtest.Must(load(t.Context(), d.Pool(), 60_000, today(), nil))(t)
	counts := rowsOf(t, d)
	for table, share := range map[string]float64{
		"p_ci_builds": 0.30, "notes": 0.15, "events": 0.10, "web_hook_logs": 0.10, "todos": 0.10,
		"ci_pipelines": 0.02, "users": 0.005, "projects": 0.002,
	} {
		require.InEpsilon(t, share, float64(counts[table])/float64(made), 0.05, table)
	}
	for _, c := range claims() {
		require.True(t, pgtest.Scalar[bool](t, d, c.query), c.holds)
	}
	requireIDsGoOn(t, d)
}

func claims() []claim {
	return []claim{
		{"the first project has about a tenth of the builds, and more than any other", `
			SELECT avg((project_id = 1)::int) BETWEEN 0.08 AND 0.2 AND mode() WITHIN GROUP (ORDER BY project_id) = 1
			FROM p_ci_builds`},
		{"the ten busiest people wrote more than a fifth of the notes", `
			SELECT sum(written) FILTER (WHERE place <= 10) / sum(written) > 0.2
			FROM (
				SELECT count(*) AS written, row_number() OVER (ORDER BY count(*) DESC) AS place FROM notes GROUP BY author_id
			) AS writers`},
		{"both partitions have builds", `SELECT count(DISTINCT tableoid) = 2 FROM p_ci_builds`},
		{"builds belong to their pipeline's project", `
			SELECT bool_and(p_ci_builds.project_id = ci_pipelines.project_id)
			FROM p_ci_builds JOIN ci_pipelines ON ci_pipelines.id = commit_id`},
		{"artifacts belong to their build's pipeline and project", `
			SELECT bool_and(pipeline_id = commit_id AND ci_job_artifacts.project_id = p_ci_builds.project_id)
			FROM ci_job_artifacts JOIN p_ci_builds ON p_ci_builds.id = job_id`},
		{"the head pipeline of a merge request is one of its own", `
			SELECT bool_and(merge_request_id = merge_requests.id) AND count(*) > 0
			FROM merge_requests JOIN ci_pipelines ON ci_pipelines.id = head_pipeline_id`},
		{"the groups stand in trees of three levels", `
			WITH RECURSIVE tree AS (
				SELECT id, ARRAY[id] AS way FROM groups WHERE parent_id IS NULL
				UNION ALL
				SELECT groups.id, tree.way || groups.id FROM groups JOIN tree ON tree.id = groups.parent_id
			)
			SELECT count(*) = (SELECT count(*) FROM groups) AND bool_and(way = traversal_ids) AND max(cardinality(way)) = 3
			FROM tree JOIN groups USING (id)`},
		{"every group has an owner", `
			SELECT count(DISTINCT source_id) = (SELECT count(*) FROM groups)
			FROM members
			WHERE source_type = 'Namespace' AND access_level = 50 AND user_id IS NOT NULL`},
		{"some groups have no projects", `
			SELECT count(*) > 0 FROM groups WHERE NOT EXISTS (SELECT FROM projects WHERE group_id = groups.id)`},
		{"some groups are marked, and these have a schedule of the same day", `
			SELECT count(*) > 0 AND bool_and(schedules.marked_for_deletion_on = groups.marked_for_deletion_on)
			FROM groups LEFT JOIN group_deletion_schedules AS schedules ON schedules.group_id = groups.id
			WHERE groups.marked_for_deletion_on IS NOT NULL OR schedules.group_id IS NOT NULL`},
		{"merge requests are open, closed and merged, with metrics that say so", `
			SELECT count(DISTINCT state_id) = 3 AND bool_and((state_id = 3) = (merged_at IS NOT NULL) AND (state_id = 2) = (latest_closed_at IS NOT NULL))
			FROM merge_requests JOIN merge_request_metrics ON merge_request_id = merge_requests.id`},
		{"every merge request points to the newest of its diffs, of which there are up to three", `
			SELECT bool_and(latest_merge_request_diff_id = newest) AND max(versions) = 3 AND count(*) = (SELECT count(*) FROM merge_requests)
			FROM merge_requests
			JOIN (
				SELECT merge_request_id, max(id) AS newest, count(*) AS versions FROM merge_request_diffs GROUP BY merge_request_id
			) AS diffs ON merge_request_id = merge_requests.id`},
		{"every diff knows how many files it has, and they are numbered from 0", `
			SELECT bool_and(files_count = files AND last = files - 1) AND count(*) = (SELECT count(*) FROM merge_request_diffs)
			FROM merge_request_diffs
			JOIN (
				SELECT merge_request_diff_id, count(*) AS files, max(relative_order) AS last FROM merge_request_diff_files GROUP BY merge_request_diff_id
			) AS found ON merge_request_diff_id = id`},
		{"diffs are unified diffs, a few of them empty, long, or bytes in base64", `
			SELECT bool_and("binary" OR diff = '' OR diff ~ '^@@ -[0-9]+,[0-9]+ \+[0-9]+,[0-9]+ @@')
				AND bool_or(diff = '') AND max(octet_length(diff)) > 2000000
				AND bool_or(CASE WHEN diff ~ '^[A-Za-z0-9+/]+=*$' THEN "binary" AND octet_length(decode(diff, 'base64')) = 28 END)
			FROM merge_request_diff_files`},
		{"some awards could not all be given to one person", `
			SELECT count(*) > 0
			FROM (SELECT FROM award_emoji GROUP BY awardable_type, awardable_id, name HAVING count(*) > 1) AS awarded`},
		{"details belong to placeholders, and each of these has one", `
			SELECT bool_and(user_type = 15) AND count(*) = (SELECT count(*) FROM users WHERE user_type = 15)
			FROM import_placeholder_user_details JOIN users ON users.id = placeholder_user_id`},
		{"some placeholders may go and have written nothing", `
			SELECT count(*) > 0
			FROM import_placeholder_user_details
			WHERE namespace_id IS NULL AND deletion_attempts < 15 AND NOT EXISTS (SELECT FROM notes WHERE author_id = placeholder_user_id)`},
		{"some placeholders have written something", `
			SELECT count(*) > 0 FROM notes JOIN users ON users.id = author_id WHERE user_type = 15`},
		{"three quarters of the people may be deleted directly", `
			SELECT bool_and(reporter_id % 4 = 1) FROM abuse_reports`},
		{"nothing comes from the future", `SELECT max(created_at) <= '2026-03-29 00:00+00' FROM events`},
		{"every table has statistics", `
			SELECT count(*) = 0 FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND reltuples < 0`},
	}
}

// requireIDsGoOn looks at the sequences: each goes on where the data ends.
func requireIDsGoOn(t *testing.T, d *pgtest.Database) {
	sequences := d.Rows(`
		SELECT relname, pg_get_serial_sequence(quote_ident(relname), 'id')
		FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attname = 'id'
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'application_settings'`)
	require.Greater(t, len(sequences), 40)
	for _, row := range sequences {
		table := pgx.Identifier{row[0]}.Sanitize()
		require.True(t, pgtest.Scalar[bool](t, d, "SELECT nextval($1::text::regclass) = (SELECT max(id) + 1 FROM "+table+")", row[1]), table)
	}
}
