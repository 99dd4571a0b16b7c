package groupdelete_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/groupdelete"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// shape is a schema below groups and projects, with rows.
type shape struct{ tables, rows string }

// newSince maps the name of a shape to the first major version of Postgres that supports
// the shape. Other shapes work on all supported versions.
var newSince = map[string]int{
	"composite key": 15, "periods, keys that are not enforced, virtual columns": 18,
	"period": 18,
}

// shapes are schemas that a plan must resolve. All tables also have rows below project
// 91, which is kept.
var shapes = map[string]shape{
	"composite key": {
		`CREATE TABLE builds (id bigint, part bigint, project_id bigint REFERENCES projects ON DELETE CASCADE, PRIMARY KEY (id, part));
		CREATE TABLE artifacts (id bigint PRIMARY KEY, build bigint, part bigint, FOREIGN KEY (build, part) REFERENCES builds (id, part) ON DELETE CASCADE);
		CREATE TABLE traces (id bigint PRIMARY KEY, part bigint NOT NULL, build bigint,
			FOREIGN KEY (part, build) REFERENCES builds (part, id) ON DELETE SET NULL (build));
		CREATE INDEX ON builds (project_id); CREATE INDEX ON artifacts (build, part); CREATE INDEX ON traces (build);
		ALTER TABLE builds ADD UNIQUE (part, id);`,
		`INSERT INTO builds SELECT n, id, id FROM projects, generate_series(1, 5) AS n;
		INSERT INTO artifacts SELECT 1000 * part + 10 * id + n, id, part FROM builds, generate_series(1, 3) AS n; INSERT INTO traces SELECT 10 * part + id, part, id FROM builds;`,
	},
	"periods, keys that are not enforced, virtual columns": {
		`CREATE TABLE rates (code int4range, valid daterange, project_id bigint REFERENCES projects ON DELETE CASCADE,
			twice bigint GENERATED ALWAYS AS (2 * project_id) VIRTUAL, PRIMARY KEY (code, valid WITHOUT OVERLAPS));
		CREATE TABLE bookings (id bigint PRIMARY KEY, rate int4range, during daterange, project_id bigint REFERENCES projects ON DELETE CASCADE,
			FOREIGN KEY (rate, PERIOD during) REFERENCES rates (code, PERIOD valid));
		CREATE TABLE hints (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE NOT ENFORCED);
		CREATE INDEX ON rates (project_id); CREATE INDEX ON bookings (project_id); CREATE INDEX ON bookings (rate, during); CREATE INDEX ON hints (project_id);`,
		`INSERT INTO rates SELECT int4range(1, 2), daterange('2026-01-01'::date + id::int, '2026-01-02'::date + id::int), id FROM projects;
		INSERT INTO bookings SELECT project_id, code, valid, project_id FROM rates; INSERT INTO hints SELECT id, id FROM projects;`,
	},
	"tree in a table": {
		`CREATE TABLE epics (id bigint PRIMARY KEY, project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
			parent_id bigint REFERENCES epics ON DELETE CASCADE);
		CREATE INDEX ON epics (project_id); CREATE INDEX ON epics (parent_id);`,
		`INSERT INTO epics SELECT 1000 * id + n, id, CASE WHEN n > 1 THEN 1000 * id + n / 2 END FROM projects, generate_series(1, 40) AS n;
		INSERT INTO epics VALUES (1, 91, 11001), (2, 91, 1), (3, 91, 2);`,
	},
	"chain in a table": {
		`CREATE TABLE links (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, before bigint REFERENCES links ON DELETE CASCADE);
		CREATE INDEX ON links (project_id); CREATE INDEX ON links (before);`,
		`INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, nullif(n - 1, 0) FROM generate_series(1, 60) AS n;`,
	},
	"cycle of rows": {
		`CREATE TABLE a (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, b bigint);
		CREATE TABLE b (id bigint PRIMARY KEY, a bigint REFERENCES a ON DELETE CASCADE);
		CREATE TABLE below (id bigint PRIMARY KEY, b bigint REFERENCES b ON DELETE CASCADE);
		ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b ON DELETE CASCADE;
		CREATE INDEX ON a (project_id); CREATE INDEX ON a (b); CREATE INDEX ON b (a); CREATE INDEX ON below (b);`,
		`INSERT INTO a SELECT n, 11 FROM generate_series(1, 9) AS n;
		INSERT INTO b SELECT n, n FROM generate_series(1, 9) AS n; UPDATE a SET b = id % 9 + 1;
		INSERT INTO below SELECT n, n % 9 + 1 FROM generate_series(1, 50) AS n;
		INSERT INTO a VALUES (20, 91, NULL); INSERT INTO b VALUES (20, 20); UPDATE a SET b = 20 WHERE id = 20;`,
	},
	"cycle through a project": {
		`CREATE TABLE uploads (id bigint PRIMARY KEY, project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE);
		ALTER TABLE projects ADD COLUMN avatar bigint REFERENCES uploads ON DELETE CASCADE;
		CREATE INDEX ON uploads (project_id); CREATE INDEX ON projects (avatar);`,
		`INSERT INTO uploads SELECT id, id FROM projects; UPDATE projects SET avatar = id;`,
	},
	"cycle through the group": {
		`CREATE TABLE uploads (id bigint PRIMARY KEY, group_id bigint NOT NULL REFERENCES groups ON DELETE CASCADE);
		ALTER TABLE groups ADD COLUMN avatar bigint REFERENCES uploads ON DELETE CASCADE;
		CREATE INDEX ON uploads (group_id); CREATE INDEX ON groups (avatar);`,
		`INSERT INTO uploads SELECT 10 * id + n, id FROM groups, generate_series(1, 3) AS n; UPDATE groups SET avatar = 10 * id + 1;`,
	},
	"cycle that forbids": {
		`CREATE TABLE requests (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, latest bigint);
		CREATE TABLE diffs (id bigint PRIMARY KEY, request_id bigint REFERENCES requests ON DELETE CASCADE);
		ALTER TABLE requests ADD FOREIGN KEY (latest) REFERENCES diffs ON DELETE NO ACTION;
		CREATE INDEX ON requests (project_id); CREATE INDEX ON requests (latest); CREATE INDEX ON diffs (request_id);`,
		`INSERT INTO requests SELECT 10 * id + n, id FROM projects, generate_series(1, 3) AS n;
		INSERT INTO diffs SELECT 10 * id + n, id FROM requests, generate_series(1, 3) AS n; UPDATE requests SET latest = 10 * id + 3;`,
	},
	"cycle of SET NULL": {
		`CREATE TABLE requests (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, latest bigint);
		CREATE TABLE diffs (id bigint PRIMARY KEY, request_id bigint REFERENCES requests ON DELETE CASCADE);
		ALTER TABLE requests ADD FOREIGN KEY (latest) REFERENCES diffs ON DELETE SET NULL;
		CREATE INDEX ON requests (project_id); CREATE INDEX ON requests (latest); CREATE INDEX ON diffs (request_id);`,
		`INSERT INTO requests SELECT 10 * id + n, id FROM projects, generate_series(1, 3) AS n;
		INSERT INTO diffs SELECT 10 * id + n, id FROM requests, generate_series(1, 3) AS n; UPDATE requests SET latest = 10 * id + 3;
		UPDATE requests SET latest = 1113 WHERE id = 911;`,
	},
	"partitions": {
		`CREATE TABLE builds (id bigint, part bigint, project_id bigint REFERENCES projects ON DELETE CASCADE, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
		CREATE TABLE builds_1 PARTITION OF builds FOR VALUES IN (1);
		CREATE TABLE builds_2 PARTITION OF builds FOR VALUES IN (2) PARTITION BY RANGE (id);
		CREATE TABLE builds_2a PARTITION OF builds_2 FOR VALUES FROM (0) TO (500);
		CREATE TABLE builds_2b PARTITION OF builds_2 FOR VALUES FROM (500) TO (MAXVALUE);
		CREATE TABLE artifacts (id bigint, build bigint, part bigint, FOREIGN KEY (build, part) REFERENCES builds ON DELETE CASCADE) PARTITION BY HASH (id);
		CREATE TABLE artifacts_0 PARTITION OF artifacts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE artifacts_1 PARTITION OF artifacts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE TABLE special (id bigint PRIMARY KEY, build bigint, part bigint, FOREIGN KEY (build, part) REFERENCES builds_1 ON DELETE CASCADE);
		CREATE TABLE own (id bigint, build bigint) PARTITION BY LIST (id);
		CREATE TABLE own_1 PARTITION OF own FOR VALUES IN (1);
		CREATE TABLE own_rest PARTITION OF own DEFAULT;
		ALTER TABLE builds_1 ADD UNIQUE (id);
		CREATE TABLE narrow (id bigint PRIMARY KEY, build bigint REFERENCES builds_1 (id) ON DELETE CASCADE);
		ALTER TABLE own_1 ADD FOREIGN KEY (build) REFERENCES projects ON DELETE CASCADE;
		CREATE INDEX ON builds (project_id); CREATE INDEX ON artifacts (build, part); CREATE INDEX ON special (build); CREATE INDEX ON own (build);
		CREATE INDEX ON narrow (build);`,
		`INSERT INTO builds SELECT 10 * id + n, 1 + n % 2, id FROM projects, generate_series(1, 6) AS n;
		INSERT INTO artifacts SELECT 10 * id + n, id, part FROM builds, generate_series(1, 3) AS n;
		INSERT INTO special SELECT id, id, part FROM builds WHERE part = 1;
		INSERT INTO builds VALUES (7, 1, 91), (7, 2, 11), (8, 1, 11), (8, 2, 91); INSERT INTO narrow VALUES (7, 7), (8, 8);
		INSERT INTO own SELECT 1, id FROM projects; INSERT INTO own SELECT id, id FROM projects;`,
	},
	"foreign key in the partition key": {
		`CREATE TABLE seats (id bigint, project_id bigint REFERENCES projects ON DELETE SET NULL, group_id bigint DEFAULT NULL REFERENCES groups ON DELETE SET DEFAULT)
			PARTITION BY LIST (project_id);
		CREATE TABLE seats_11 PARTITION OF seats FOR VALUES IN (11) PARTITION BY RANGE (group_id);
		CREATE TABLE seats_11_1 PARTITION OF seats_11 FOR VALUES FROM (0) TO (2);
		CREATE TABLE seats_11_rest PARTITION OF seats_11 DEFAULT;
		CREATE TABLE seats_rest PARTITION OF seats DEFAULT;
		CREATE INDEX ON seats (project_id); CREATE INDEX ON seats (group_id);`,
		`INSERT INTO seats SELECT 10 * id + n, id, n FROM projects, generate_series(1, 2) AS n;`,
	},
	"several paths": {
		issues + `CREATE TABLE todos (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE SET NULL,
			issue_id bigint REFERENCES issues ON DELETE CASCADE, note_id bigint REFERENCES notes ON DELETE CASCADE, group_id bigint REFERENCES groups ON DELETE CASCADE);
		CREATE INDEX ON todos (project_id); CREATE INDEX ON todos (issue_id); CREATE INDEX ON todos (note_id); CREATE INDEX ON todos (group_id);`,
		someIssues + `INSERT INTO todos SELECT n, (ARRAY[11, 21, 91])[1 + n % 3], (ARRAY[111, 412, 911])[1 + n % 4], CASE WHEN n % 5 = 0 THEN 1111 END, CASE n % 7 WHEN 0 THEN 3 WHEN 1 THEN 9 END
			FROM generate_series(1, 100) AS n;`,
	},
	"other columns than the key": {
		`CREATE TABLE repositories (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, hash text UNIQUE);
		CREATE TABLE commits (id bigint PRIMARY KEY, repository text REFERENCES repositories (hash) ON DELETE CASCADE ON UPDATE CASCADE);
		CREATE TABLE tags (name text NOT NULL, repository text DEFAULT 'r91' REFERENCES repositories (hash) ON DELETE SET DEFAULT);
		CREATE INDEX ON repositories (project_id); CREATE INDEX ON commits (repository); CREATE INDEX ON tags (repository);`,
		`INSERT INTO repositories SELECT id, id, 'r' || id FROM projects; INSERT INTO commits SELECT 10 * id + n, hash FROM repositories, generate_series(1, 4) AS n;
		INSERT INTO tags SELECT 'v1', hash FROM repositories;`,
	},
	"forbidden by rows that are deleted": {
		issues + `CREATE TABLE milestones (id bigint PRIMARY KEY, group_id bigint REFERENCES groups ON DELETE CASCADE);
		ALTER TABLE issues ADD COLUMN milestone_id bigint REFERENCES milestones ON DELETE RESTRICT;
		ALTER TABLE issues ADD COLUMN duplicate_of bigint REFERENCES issues ON DELETE NO ACTION;
		CREATE INDEX ON milestones (group_id); CREATE INDEX ON issues (milestone_id); CREATE INDEX ON issues (duplicate_of);`,
		someIssues + `INSERT INTO milestones SELECT id, id FROM groups; UPDATE issues SET milestone_id = project_id / 10 % 2 + 1, duplicate_of = 421 WHERE project_id < 90;
		UPDATE issues SET milestone_id = 9 WHERE project_id > 90;`,
	},
	"forbidden by rows that are deleted through one table twice": {
		`CREATE TABLE notes (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, reply_to bigint REFERENCES notes ON DELETE CASCADE);
		CREATE TABLE pins (id bigint PRIMARY KEY, note_id bigint REFERENCES notes ON DELETE CASCADE, project_id bigint REFERENCES projects ON DELETE NO ACTION);
		CREATE INDEX ON notes (project_id); CREATE INDEX ON notes (reply_to); CREATE INDEX ON pins (note_id); CREATE INDEX ON pins (project_id);`,
		`INSERT INTO notes VALUES (1, 11, NULL), (2, NULL, 1), (3, 91, NULL), (4, NULL, 3); INSERT INTO pins VALUES (1, 2, 11), (2, 4, 91);`,
	},
	"projects below projects": {
		`ALTER TABLE projects ADD COLUMN forked_from bigint REFERENCES projects ON DELETE CASCADE; CREATE INDEX ON projects (forked_from);
		ALTER TABLE groups ADD COLUMN template bigint REFERENCES groups ON DELETE SET NULL; CREATE INDEX ON groups (template);`,
		`UPDATE projects SET forked_from = 11 WHERE id IN (12, 21, 92); UPDATE groups SET template = 2 WHERE id IN (1, 9);`,
	},
}

func TestShapes(t *testing.T) {
	t.Parallel()
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.RequireVersion(t, newSince[name])
			b := setup(t, s.tables, s.rows)
			engine := b.engine(t, 1)
			engine.Sizes.Rows = 2
			b.run(t, engine, groupdelete.Destroyed)
			b.requireAsNative(t, s.tables, s.rows)
			events := b.Rows("SELECT payload ->> 'project_id' FROM sexton.events WHERE kind = 'project_destroyed' ORDER BY 1")
			want := b.Rows("SELECT id::text FROM (SELECT 10 * id + n AS id FROM (VALUES (1), (2), (3), (4), (9)) AS was (id), generate_series(1, 2) AS n) AS was WHERE id NOT IN (SELECT id FROM projects) ORDER BY 1")
			require.Equal(t, want, events, "each deleted project has one event")
		})
	}
}

// The error names a row that forbids the destruction. The row, the rows that it refers to
// and the groups above are kept, and an attempt is recorded.
func TestForbiddingRow(t *testing.T) {
	t.Parallel()
	type example struct{ tables, rows, want string }
	pgtest.Each(t, map[string]example{
		"row of another table": {
			issues + `CREATE TABLE invoices (id bigint PRIMARY KEY, note_id bigint, CONSTRAINT paid FOREIGN KEY (note_id) REFERENCES notes ON DELETE RESTRICT);
			CREATE INDEX ON invoices (note_id);`,
			someIssues + `INSERT INTO invoices VALUES (7, 3211), (8, 9111);`,
			"invoices: the row with id 7 refers to notes, and foreign key paid has no ON DELETE action",
		},
		"row that is kept": {
			issues + `ALTER TABLE issues ADD COLUMN duplicate_of bigint, ADD CONSTRAINT duplicate FOREIGN KEY (duplicate_of) REFERENCES issues ON DELETE NO ACTION;
			CREATE INDEX ON issues (duplicate_of);`,
			someIssues + `UPDATE issues SET duplicate_of = 421 WHERE id IN (111, 911);`,
			"issues: the row with id 911 refers to issues, and foreign key duplicate has no ON DELETE action",
		},
		"column that is NOT NULL": {
			`CREATE TABLE logs (name text PRIMARY KEY, group_id bigint NOT NULL, CONSTRAINT logged FOREIGN KEY (group_id) REFERENCES groups ON DELETE SET NULL);
			CREATE INDEX ON logs (group_id);`,
			`INSERT INTO logs VALUES ('first', 3);`,
			"logs: the row with name first refers to groups, and foreign key logged sets NOT NULL columns to NULL",
		},
		"period": {
			`CREATE TABLE rates (code int4range, valid daterange, group_id bigint REFERENCES groups ON DELETE CASCADE, PRIMARY KEY (code, valid WITHOUT OVERLAPS));
			CREATE TABLE bookings (id bigint PRIMARY KEY, rate int4range, during daterange,
				CONSTRAINT booked FOREIGN KEY (rate, PERIOD during) REFERENCES rates (code, PERIOD valid));
			CREATE INDEX ON rates (group_id); CREATE INDEX ON bookings (rate, during);`,
			`INSERT INTO rates SELECT int4range(1, 2), daterange(make_date(2020 + id::int, 1, 1), make_date(2021 + id::int, 1, 1)), id FROM groups;
			INSERT INTO bookings VALUES (7, '[1,1]', '[2029-05-01,2029-06-01)'), (8, '[1,1]', '[2022-12-01,2023-02-01)');`,
			"bookings: the row with id 8 refers to rates, and foreign key booked has no ON DELETE action",
		},
	}, func(t *testing.T, name string, test example) {
		pgtest.RequireVersion(t, newSince[name])
		_, err := deleteNatively(t, test.tables, test.rows)
		require.Error(t, err, "Postgres returns an error, too")
		b := setup(t, test.tables, test.rows)
		require.Equal(t, test.want, b.destroy(t, groupdelete.Stuck).Reason)
		require.Len(t, b.Rows("SELECT FROM groups WHERE id IN (1, 9)"), 2)
		require.Equal(t, [][]string{{"1", "1", test.want}},
			b.Rows("SELECT group_id, attempts, last_error FROM sexton.group_destructions"))
	})
}

// invoices creates a table whose rows forbid the deletion of notes.
const invoices = `CREATE TABLE invoices (id bigint PRIMARY KEY, note_id bigint, CONSTRAINT paid FOREIGN KEY (note_id) REFERENCES notes ON DELETE RESTRICT);
CREATE INDEX ON invoices (note_id);`

// A forbidding row that is inserted during the destruction keeps only the rows above it.
func TestForbiddingRowDuringTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t, issues+invoices, someIssues)
	b.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (1, 1)")
	b.Exec("INSERT INTO invoices VALUES (7, 3211)")
	stats := b.destroy(t, groupdelete.Stuck)
	want := "invoices: the row with id 7 refers to notes, and foreign key paid has no ON DELETE action"
	require.Equal(t, want, stats.Reason)
	require.Equal(t, [][]string{{"1", want}}, b.Rows("SELECT attempts, last_error FROM sexton.group_destructions"))
	require.Equal(t, [][]string{{"32", "3"}, {"91", "9"}, {"92", "9"}},
		b.Rows("SELECT id, group_id FROM projects ORDER BY id"))
	require.Equal(t, [][]string{{"3211"}}, b.Rows("SELECT id FROM notes WHERE id < 9000"))
	require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}, {"9"}}, b.Rows("SELECT id FROM groups ORDER BY id"),
		"groups 1 to 3 are kept, and group 4 is deleted")
	require.Len(t, b.Rows("SELECT FROM members WHERE source_id IN (1, 2, 3)"), 3, "the group keeps its owners")

	b.Exec("DELETE FROM invoices")
	b.destroy(t, groupdelete.Destroyed)
}

// If the row of the group changes during the run, the run still finds the projects below
// the group. A project that cannot be deleted keeps the members of the group.
func TestGroupChangesDuringTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t, issues+invoices, someIssues)
	b.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (1, 1)")
	b.Exec("INSERT INTO invoices VALUES (7, 1111)")
	engine := b.engine(t, 1)
	changed := doOnce(engine, func(stats *groupdelete.Stats) bool {
		return stats.Batches > 0 &&
			stats.Step == "projects of group 1"
	},
		func() { b.Exec("UPDATE groups SET name = 'changed' WHERE id = 1") })
	b.run(t, engine, groupdelete.Stuck)
	require.True(t, changed())
	require.Equal(t, [][]string{{"11"}}, b.Rows("SELECT id FROM projects WHERE id < 90"))
	require.Len(t, b.Rows("SELECT FROM members WHERE source_id = 1"), 1, "the group keeps its owners")

	// A trigger that changes the group with each batch does not prevent its deletion.
	b.Exec(`DELETE FROM invoices; ALTER TABLE groups ADD n integer NOT NULL DEFAULT 0; INSERT INTO projects SELECT n, 1, n FROM generate_series(1000, 1030) AS n;
		CREATE FUNCTION recount() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE public.groups SET n = n + 1 WHERE id = old.group_id; RETURN NULL; END';
		CREATE TRIGGER recount AFTER DELETE ON projects FOR EACH ROW EXECUTE FUNCTION recount()`)
	engine = b.engine(t, 1)
	engine.Sizes = groupdelete.Sizes{Rows: 1, Target: time.Nanosecond}
	b.run(t, engine, groupdelete.Destroyed)
}

func TestPlanOfTheReferenceApplication(t *testing.T) {
	t.Parallel()
	plan, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), dbtest.Reference(t).Pool(), dbtest.Names(),
		groupdelete.Groups{}, true))(t)
	require.Empty(t, problems)
	tables := plan.Tables()
	require.Contains(t, tables, "issues")
	require.Contains(t, tables, "members")
	require.NotContains(t, tables, "users")
	require.NotContains(t, tables, "notes", "notes have a loose foreign key")
	require.Equal(t, "groups", tables[len(tables)-1])
}

func TestPlanWithoutTables(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("CREATE TABLE groups (id bigint)")
	plan, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), d.Pool(), dbtest.Names(), groupdelete.Groups{},
		false))(t)
	require.Nil(t, plan)
	require.Len(t, problems, 3)
	require.Equal(t, "table groups has no column parent_id", problems[0].Message)
}

// A key without an index is a warning, and the group can be deleted.
func TestPlanReportsMissingIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t,
		"CREATE TABLE labels (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE);",
		"INSERT INTO labels SELECT id, id FROM projects;")
	_, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), b.Pool(), dbtest.Names(), groupdelete.Groups{},
		false))(t)
	require.NoError(t, problems.Err())
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].String(), "no index of labels begins with project_id")
	require.Equal(t, `CREATE INDEX CONCURRENTLY ON "public"."labels" ("project_id")`, problems[0].Fix)
	b.Exec("CREATE INDEX broken ON labels (project_id); UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'broken'::regclass")
	_, problems = pgtest.Must2(groupdelete.Resolve(t.Context(), b.Pool(), dbtest.Names(), groupdelete.Groups{},
		false))(t)
	require.Len(t, problems, 1)
	require.Equal(t, "REINDEX INDEX CONCURRENTLY public.broken", problems[0].Fix)
	b.run(t, b.engineOf(t, 1, &lease.Manager{Jobs: b.Connected, Holder: "b"}, false), groupdelete.Destroyed)
	require.Len(t, b.Rows("SELECT FROM labels"), 2)
}
