package integration

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/ghostuser"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
)

const ghostKind = "users_migrate_records_to_ghost_user_in_batches"

// scenarios is a folder with given.sql and when.sql, which are the same for all, and a folder per scenario:
//
//	given.sql    more rows, or tables
//	sexton.yaml  other lists than the default ones, if any
//	then.sql     a query, and as comments its rows after a soft and a hard delete
//	error.txt    in place of then.sql: what the configuration is refused for
const scenarios = "testdata/ghost_users"

// coverage collects what scenarios with the default lists have seen done, as "soft moved issues.author_id".
type coverage struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (c *coverage) note(deletion string, stats ghostuser.Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for did, columns := range map[string]map[string]int64{" moved ": stats.Moved, " deleted ": stats.Deleted, " nullified ": stats.Nullified} {
		for column := range columns {
			c.seen[deletion+did+column] = true
		}
	}
}

// TestGhostUserScenarios deletes Ada in the reference application, with one thing at a time that refers to her.
func TestGhostUserScenarios(t *testing.T) {
	t.Parallel()
	folders := pgtest.Must(fs.Glob(os.DirFS(scenarios), "*/given.sql"))(t)
	covered := &coverage{seen: map[string]bool{}}
	deletions := []string{"soft"}
	if pgtest.Long {
		deletions = append(deletions, "hard")
	}
	t.Run("scenarios", func(t *testing.T) {
		for _, deletion := range deletions {
			t.Run(deletion, func(t *testing.T) {
				t.Parallel()
				shared := dbtest.Reference(t)
				for _, given := range folders {
					t.Run(filepath.Dir(given), func(t *testing.T) {
						s := newGhostScenario(t, filepath.Join(scenarios, filepath.Dir(given)), shared)
						if reason := s.optional(t, "error.txt"); reason != "" {
							s.refused(t, deletion, strings.TrimSpace(reason))
							return
						}
						stats := s.play(t, deletion)
						if s.optional(t, "sexton.yaml") == "" {
							covered.note(deletion, stats)
						}
					})
				}
			})
		}
	})
	unseen := slices.DeleteFunc(defaultFates(t), func(fate string) bool {
		deletion, _, _ := strings.Cut(fate, " ")
		return covered.seen[fate] || !slices.Contains(deletions, deletion)
	})
	require.Empty(t, unseen, "what is done by default and no scenario shows")
}

// defaultFates is all that the default lists, and the keys of the reference application that none of them names, have done.
func defaultFates(t *testing.T) []string {
	c := pgtest.Must(config.Load(config.Options{DatabaseURL: "postgres://nobody@nowhere.invalid/none", Dir: t.TempDir()}))(t)
	var fates []string
	moved := map[string]bool{}
	for _, entry := range c.GhostUsers.Move {
		for _, column := range entry.Columns {
			label := entry.Table + "." + column
			moved[label] = len(entry.Conditions) == 0
			fates = append(fates, "soft moved "+label)
			if entry.Always {
				fates = append(fates, "hard moved "+label)
			}
		}
	}
	listed := map[string]bool{}
	add := func(did, table string, columns []string) {
		for _, column := range columns {
			label := table + "." + column
			listed[label] = true
			fates = append(fates, "hard "+did+" "+label)
			if !moved[label] {
				fates = append(fates, "soft "+did+" "+label)
			}
		}
	}
	for _, entry := range c.GhostUsers.Delete {
		add("deleted", entry.Table, entry.Columns)
	}
	for _, entry := range c.GhostUsers.Nullify {
		add("nullified", entry.Table, entry.Columns)
	}
	require.Greater(t, len(fates), 70, "fates of the default lists")
	for _, key := range dbtest.Reference(t).Rows(`
		SELECT conrelid::regclass || '.' || attname, CASE confdeltype WHEN 'c' THEN 'deleted' ELSE 'nullified' END
		FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
		WHERE contype = 'f' AND confrelid = 'users'::regclass AND conrelid <> 'users_ghost_user_migrations'::regclass AND conparentid = 0`) {
		label := key[0]
		if _, is := moved[label]; !is && !listed[label] {
			fates = append(fates, "soft "+key[1]+" "+label, "hard "+key[1]+" "+label)
		} else if always := slices.Contains(fates, "hard moved "+label); is && !listed[label] && !always {
			fates = append(fates, "hard "+key[1]+" "+label)
		}
	}
	return fates
}

// ghostScenario is a database in the state of a folder's given.sql, and the program's own way to run a pass on it.
type ghostScenario struct {
	folder string
	db     *dbtest.DB
	deps   riverjobs.Deps
}

// wipe empties the tables of the application and forgets what was done to them.
const wipe = `
DO $$
DECLARE
    used regclass;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR used IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('DELETE FROM %s', used);
    END LOOP;
    DELETE FROM sexton.events;
    ALTER TABLE users ALTER id RESTART;
END $$`

// newGhostScenario takes the shared database, as a copy of its own costs more than the whole scenario, unless given.sql
// changes the schema.
func newGhostScenario(t *testing.T, folder string, shared *dbtest.DB) *ghostScenario {
	s := &ghostScenario{folder: folder, db: shared}
	given := read(t, filepath.Join(folder, "given.sql"))
	if strings.Contains(given, "CREATE TABLE") {
		s.db = dbtest.Reference(t)
	}
	s.db.Exec(wipe)
	s.db.Exec(read(t, filepath.Join(scenarios, "given.sql")))
	s.db.Exec(given)
	options := config.Options{DatabaseURL: s.db.URL, Dir: t.TempDir(), Environ: []string{"SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false"}}
	if s.optional(t, "sexton.yaml") != "" {
		options.Path = pgtest.Must(filepath.Abs(filepath.Join(folder, "sexton.yaml")))(t)
	}
	c := pgtest.Must(config.Load(options))(t)
	logger := pgtest.Logger(t)
	s.deps = riverjobs.Deps{
		Bindings: &riverjobs.Bindings{}, Config: c, Databases: []database.Database{s.db.Connected}, Logger: logger,
		Runner: &jobrun.Runner{Leases: &lease.Manager{Jobs: s.db.Connected, Holder: t.Name()}, Logger: logger},
	}
	return s
}

func read(t *testing.T, path string) string {
	return string(pgtest.Must(os.ReadFile(path))(t))
}

// optional is the text of a file of the scenario's, or "".
func (s *ghostScenario) optional(t *testing.T, name string) string {
	if _, err := os.Stat(filepath.Join(s.folder, name)); err != nil {
		return ""
	}
	return read(t, filepath.Join(s.folder, name))
}

func (s *ghostScenario) pass(ctx context.Context) (jobrun.Report, error) {
	return riverjobs.Jobs(s.deps.Config)[0].Run(ctx, s.deps, riverjobs.Pass{Database: "main"})
}

// refused expects that Ada is put off for the reason, and that nothing of hers is touched.
func (s *ghostScenario) refused(t *testing.T, deletion, reason string) {
	s.db.Exec(read(t, filepath.Join(scenarios, "when.sql")), deletion == "hard")
	require.EqualValues(t, 1, s.ran(t).UsersFailed)
	require.Equal(t, [][]string{{reason}}, s.db.Rows("SELECT last_error FROM users_ghost_user_migrations"))
	require.Equal(t, [][]string{{"ada"}, {"ben"}}, s.db.Rows("SELECT username FROM users WHERE username IN ('ada', 'ben') ORDER BY id"))
}

// play deletes Ada and expects the rows of then.sql, and that nothing of her is left.
func (s *ghostScenario) play(t *testing.T, deletion string) ghostuser.Stats {
	s.db.Exec(read(t, filepath.Join(scenarios, "when.sql")), deletion == "hard")
	stats := s.ran(t)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.Empty(t, stats.Errors)

	query, expected := expectation(t, s.optional(t, "then.sql"), deletion)
	require.Equal(t, expected, s.lines(query), "rows of %s", query)
	require.Empty(t, s.db.Rows("SELECT FROM users WHERE username = 'ada'"))
	require.Empty(t, s.db.Rows("SELECT FROM users_ghost_user_migrations"))
	require.Equal(t, [][]string{{"user_destroyed", "1", "2"}}, s.db.Rows("SELECT kind, payload ->> 'user_id', payload ->> 'initiator_user_id' FROM sexton.events WHERE kind = 'user_destroyed'"))
	again := s.ran(t)
	require.False(t, again.Changed(), "the second run")
	require.Equal(t, expected, s.lines(query), "rows after the second run")
	return stats
}

func (s *ghostScenario) ran(t *testing.T) (stats ghostuser.Stats) {
	report := pgtest.Must(s.pass(t.Context()))(t)
	require.Equal(t, jobrun.Done, report.Outcome)
	require.NoError(t, json.Unmarshal(report.Stats, &stats))
	return stats
}

func (s *ghostScenario) lines(query string) []string {
	lines := []string{}
	for _, row := range s.db.Rows(query) {
		lines = append(lines, strings.Join(row, " | "))
	}
	return lines
}

// expectation takes a then.sql apart: the query, and the rows that are expected after that sort of deletion.
func expectation(t *testing.T, text, deletion string) (query string, rows []string) {
	rows = []string{}
	applies, found := false, false
	for line := range strings.Lines(text) {
		comment, is := strings.CutPrefix(strings.TrimSpace(line), "--")
		comment = strings.TrimSpace(comment)
		switch {
		case !is:
			query += line
		case comment == "soft:" || comment == "hard:" || comment == "soft and hard:":
			applies = strings.Contains(comment, deletion)
			found = found || applies
		case applies && comment != "" && comment != "(none)":
			rows = append(rows, comment)
		}
	}
	require.True(t, found, "then.sql says nothing of a %s delete", deletion)
	return strings.TrimSpace(query), rows
}
