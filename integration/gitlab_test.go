package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// inventorySQL lists all objects in a database that are not part of Postgres.
const inventorySQL = `
WITH named AS (
    SELECT oid, nspname FROM pg_namespace WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND nspname NOT LIKE 'pg\_t%'
)
SELECT 'schema', nspname FROM named
UNION ALL SELECT 'relation', nspname || '.' || relname FROM pg_class JOIN named ON named.oid = relnamespace
UNION ALL SELECT 'function', nspname || '.' || proname FROM pg_proc JOIN named ON named.oid = pronamespace
UNION ALL SELECT 'type', nspname || '.' || typname FROM pg_type JOIN named ON named.oid = typnamespace
UNION ALL SELECT 'trigger', tgrelid::regclass || ' ' || tgname FROM pg_trigger
ORDER BY 1, 2`

// testGitLab runs the program on GitLab's own definitions from migrate up to migrate
// down. It deletes half of all parents in between, and compares every row with the result
// that applyDefinitions computes.
func testGitLab(t *testing.T, p program) {
	path := pgtest.Must(filepath.Abs("../internal/definitions/testdata/gitlab_loose_foreign_keys.yml"))(t)
	defs := pgtest.Must(definitions.Load([]string{path}))(t)
	require.Len(t, defs, 340)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sexton.yaml"),
		fmt.Appendf(nil, "databases:\n  main: {url: \"${DATABASE_URL}\"}\nloose_foreign_keys:\n  definitions: [%s]\n",
			strconv.Quote(path)), 0o600))

	random := rand.New(rand.NewPCG(1, 2))
	f := newTableModels(defs, random)
	require.Len(t, f.tables, 270)
	db := pgtest.New(t)
	f.create(t, db)
	before := db.Rows(inventorySQL)

	p.run(t, dir, db.URL, 0, "migrate", "up")
	p.run(t, dir, db.URL, 0, "triggers", "install")
	p.run(t, dir, db.URL, 0, "triggers", "status")

	deleteParents(t, db, f.drawDeletes(random))
	direct, tombstones := f.countDeadRows(), f.countTombstones()
	require.Equal(t, tombstones, pgtest.Scalar[int64](t, db, backlogSQL), "tombstones of the deleted parents")
	require.Equal(t, tombstones, pending(t, p, dir, db.URL))

	f.applyDefinitions()
	total := drain(t, p, dir, db)
	f.compare(t, db)
	require.Equal(t, f.countTombstones(), total.Processed, "tombstones processed, including those of deleted children")
	require.Equal(t, subtract(f.countDeadRows(), direct), total.DeleteCountByTable)
	require.Equal(t, artifactKeys(f), db.Rows(`
		SELECT (key.value->>'id')::bigint, key.value->>'partition_id'
		FROM sexton.events CROSS JOIN jsonb_array_elements(payload->'keys') AS key
		WHERE kind = 'files_orphaned' AND payload->>'table' = 'p_ci_job_artifacts' ORDER BY 1`), "artifacts whose files are orphaned")

	again := p.runPass(t, dir, db.URL)
	require.Equal(t, "done", again.Outcome)
	require.Zero(t, again.Processed+again.DeleteCount+again.UpdateCount, "a second run must change nothing")
	f.compare(t, db)

	require.Zero(t, pending(t, p, dir, db.URL))
	p.run(t, dir, db.URL, 0, "triggers", "status")
	p.run(t, dir, db.URL, 0, "migrate", "down")
	require.Equal(t, before, db.Rows(inventorySQL), "objects after migrate down")
}

// TestOneGitLabDeletion deletes a project without children, with all of GitLab's
// definitions. The number of round trips and statements must not grow with the number of
// definitions.
func TestOneGitLabDeletion(t *testing.T) {
	t.Parallel()
	defs := pgtest.Must(definitions.Load([]string{"../internal/definitions/testdata/gitlab_loose_foreign_keys.yml"}))(t)
	f := newTableModels(defs, rand.New(rand.NewPCG(1, 2)))
	db := dbtest.New(t)
	f.create(t, db.Database)
	parents, problems := pgtest.Must2(loosefk.Resolve(t.Context(),
		[]loosefk.Site{{Name: "main", Schema: "public", DB: db.Pool()}}, defs))(t)
	require.NoError(t, problems.Err())
	db.Track(t, "projects")
	session, _ := db.Session(t, "loose_foreign_keys/cleanup_worker:main")
	settings, sent := db.Pool().Config().ConnConfig, &roundTrips{}
	settings.Tracer = sent
	session.Conn = pgtest.ConnectAs(t, settings)
	engine := loosefk.Engine{
		Database: "main", Parents: parents["main"], Session: session, Limits: loosefk.Limits{Runtime: time.Minute},
		Adaptive: loosefk.Adaptive{Target: time.Second, Duty: 1},
	}
	db.Exec("INSERT INTO projects (id, note) SELECT n, '' FROM generate_series(1001, 1003) AS n")
	// Only the counts of the last deletion are checked, because the connection prepares
	// its statements in the first run.
	for id := 1001; id <= 1003; id++ {
		db.Exec(fmt.Sprintf("DELETE FROM projects WHERE id = %d", id))
		sent.sent.Store(0)
		sent.statements.Store(0)
		stats := pgtest.Must(engine.Run(t.Context()))(t)
		require.EqualValues(t, 1, stats.Processed)
		require.Empty(t, stats.Errors)
	}
	require.LessOrEqual(t, sent.sent.Load(), int64(4), "round trips")
	require.LessOrEqual(t, sent.statements.Load(), int64(28), "statements")
}

// compare requires that every row equals the computed one.
func (f *tableModels) compare(t *testing.T, db *pgtest.Database) {
	expected, content := f.expectedContent(), f.content(db)
	for _, table := range f.tables {
		require.Equal(t, expected[table.name], content[table.name], "rows of %s", table.name)
	}
}

// drain runs the job until there are no tombstones, and returns the sums of the reports.
func drain(t *testing.T, p program, dir string, db *pgtest.Database) report {
	total := report{DeleteCountByTable: map[string]int64{}}
	const most = 5
	for range most {
		one := p.runPass(t, dir, db.URL)
		total.Processed += one.Processed
		for table, rows := range one.DeleteCountByTable {
			total.DeleteCountByTable[table] += rows
		}
		if pgtest.Scalar[int64](t, db, backlogSQL) == 0 {
			require.Equal(t, "done", one.Outcome)
			return total
		}
		require.Equal(t, "over_limit", one.Outcome, "outcome of a run that leaves tombstones")
	}
	require.Failf(t, "the backlog is not drained", "after %d runs: %v", most,
		db.Rows("SELECT * FROM public.loose_foreign_keys_deleted_records LIMIT 10"))
	return total
}

// drawDeletes marks half of each parent's rows as dead and returns statements that delete
// them: by one key, by several keys, or from a partition.
func (f *tableModels) drawDeletes(random *rand.Rand) []string {
	var statements []string
	for _, t := range f.tables {
		if !t.parent {
			continue
		}
		order := random.Perm(len(t.rows))
		for doomed := order[:len(order)/2]; len(doomed) > 0; {
			size := min(random.IntN(9)+1, len(doomed))
			keys := make([]string, size)
			for i, index := range doomed[:size] {
				t.rows[index].dead = true
				keys[i] = fmt.Sprint(t.rows[index].id)
			}
			doomed = doomed[size:]
			from := []string{quoteName(t.name)}
			if t.partitioned && random.IntN(2) == 0 {
				from = []string{t.partition(0), t.partition(1)}
			}
			for _, table := range from {
				statements = append(statements, fmt.Sprintf("DELETE FROM %s WHERE id IN (%s)", table, quoteAll(keys)))
			}
		}
	}
	random.Shuffle(len(statements), func(i, j int) { statements[i], statements[j] = statements[j], statements[i] })
	return statements
}

// deleteParents runs the statements in several sessions in parallel.
func deleteParents(t *testing.T, db *pgtest.Database, statements []string) {
	const sessions = 4
	queue, failed := make(chan string), make(chan error, sessions)
	for range sessions {
		go func() {
			var errs []error
			for sql := range queue {
				if _, err := db.Pool().Exec(context.WithoutCancel(t.Context()), sql); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", sql, err))
				}
			}
			failed <- errors.Join(errs...)
		}()
	}
	for _, sql := range statements {
		queue <- sql
	}
	close(queue)
	for range sessions {
		require.NoError(t, <-failed)
	}
}

// pending returns the backlog that `status` reports.
func pending(t *testing.T, p program, dir, url string) int64 {
	var status struct {
		DeletionTables []struct {
			Table    string `json:"table"`
			Database string `json:"database"`
			Pending  int64  `json:"pending"`
			Capped   bool   `json:"capped"`
		} `json:"deletion_tables"`
	}
	out := p.run(t, dir, url, 0, "status", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &status), "decode status: %s", out)
	require.Len(t, status.DeletionTables, 1)
	require.Equal(t, "loose_foreign_keys_deleted_records", status.DeletionTables[0].Table)
	require.Equal(t, "main", status.DeletionTables[0].Database)
	require.False(t, status.DeletionTables[0].Capped)
	return status.DeletionTables[0].Pending
}

func subtract(all, some map[string]int64) map[string]int64 {
	difference := maps.Clone(all)
	for name, count := range some {
		if difference[name] -= count; difference[name] == 0 {
			delete(difference, name)
		}
	}
	return difference
}

// artifactKeys returns the keys of the dead rows of p_ci_job_artifacts, the only table
// whose definition has a cleaner class.
func artifactKeys(f *tableModels) [][]string {
	var keys [][]string
	artifacts := f.byName["p_ci_job_artifacts"]
	for _, row := range slices.DeleteFunc(slices.Clone(artifacts.rows), func(row *rowModel) bool { return !row.dead }) {
		keys = append(keys, []string{fmt.Sprint(row.id), fmt.Sprint(row.id % 2)})
	}
	return keys
}

// applyDefinitions computes the effect of the definitions after the rows marked as dead
// are deleted: first which further rows must be deleted, repeatedly, and then which other
// rows change.
func (f *tableModels) applyDefinitions() {
	for again := true; again; {
		again = false
		for _, t := range f.tables {
			for _, row := range t.rows {
				if !row.dead && f.matchingDefinitions(t, row, definitions.Delete) != nil {
					row.dead, again = true, true
				}
			}
		}
	}
	for _, t := range f.tables {
		for _, row := range t.rows {
			if row.dead {
				continue
			}
			for _, d := range f.matchingDefinitions(t, row, definitions.Nullify) {
				delete(row.parents, d.Columns[0])
				row.changed = true
			}
			for _, d := range f.matchingDefinitions(t, row, definitions.UpdateColumn) {
				value, _ := strconv.ParseInt(string(d.TargetValue), 10, 64)
				row.changed = row.changed || row.states[d.TargetColumn] != value
				row.states[d.TargetColumn] = value
			}
		}
	}
}

// matchingDefinitions returns the definitions of one action by which a row refers to a
// dead parent.
func (f *tableModels) matchingDefinitions(t *tableModel, row *rowModel, action definitions.Action) []definitions.Definition {
	var found []definitions.Definition
	for _, d := range t.definitions {
		parent, refers := row.parents[d.Columns[0]]
		if d.OnDelete != action || !refers || !f.byName[d.Parent.String()].rows[parent-1].dead {
			continue
		}
		if !slices.ContainsFunc(d.Conditions,
			func(c definitions.Condition) bool { return row.texts[c.Column] != string(c.Value) }) {
			found = append(found, d)
		}
	}
	return found
}

// expectedContent returns the result that content must return after the cleanup.
func (f *tableModels) expectedContent() map[string][][]string {
	content := map[string][][]string{}
	for _, t := range f.tables {
		rows := [][]string{}
		for _, row := range t.rows {
			if row.dead {
				continue
			}
			var texts []string
			for _, value := range t.values(row) {
				if value == nil {
					value = "NULL"
				}
				texts = append(texts, fmt.Sprint(value))
			}
			written := "untouched"
			if row.changed {
				written = "written"
			}
			rows = append(rows, append(texts, written))
		}
		content[t.name] = rows
	}
	return content
}

// countDeadRows returns the number of dead rows per table, without tables that have none.
func (f *tableModels) countDeadRows() map[string]int64 {
	dead := map[string]int64{}
	for _, t := range f.tables {
		for _, row := range t.rows {
			if row.dead {
				dead[t.name]++
			}
		}
	}
	return dead
}

// countTombstones returns the number of dead rows in parent tables. Each of these rows
// has got a tombstone.
func (f *tableModels) countTombstones() int64 {
	var sum int64
	for name, dead := range f.countDeadRows() {
		if f.byName[name].parent {
			sum += dead
		}
	}
	return sum
}
