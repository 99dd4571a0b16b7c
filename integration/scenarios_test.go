package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/ghostuser"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
	"sexton/internal/render"
	"sexton/internal/undo"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

const ghostKind = "users_migrate_records_to_ghost_user_in_batches"

// scenarios has a folder per component, and in it a folder per scenario. Of given.sql and
// when.sql both run, the component's first.
//
//	given.sql        rows, or tables
//	when.sql         what is asked for; $1, if it is there, is true in a hard delete
//	sexton.yaml      of the scenario: other settings than the default ones, if any
//	definitions.yml  of the scenario: loose foreign keys, if any
//	left.sql         of the component: a query for rows that no scenario may leave
//	then.sql         of the scenario: a query, and as comments its rows after each sort of deletion
//	undone.sql       of the scenario: the same after all deletions that were kept have been undone, the last one first
//	error.txt        in place of then.sql: why nothing was done
//
// The folder accounts has scenarios of an application with other tables, on which all its
// jobs run. Its tables are in schema.sql, and sexton.yaml and definitions.yml belong to
// the folder.
const scenarios = "testdata/scenarios"

// family is a component with scenarios.
type family struct {
	// kinds are those of the passes that a scenario runs. The first one is that of the
	// component. After each pass the jobs run that it has inserted.
	kinds   []string
	environ []string
	// begin makes the database that scenarios share; a scenario that creates or alters
	// tables gets one of its own.
	begin func(testing.TB) *dbtest.DB
	// deletions are the sorts of deletion; the last one is tried in the long tests alone,
	// if there are several.
	deletions []string
	// refusal is a query for the reason why nothing was done.
	refusal string
	// installed reports that begin has installed the component's sexton.yaml and
	// definitions.yml.
	installed bool
	// killed reports that the long tests also play the scenarios with workers that are
	// killed.
	killed bool
	// seen, if set, learns the statistics of each pass over the default settings.
	seen func(t *testing.T, deletion string, stats json.RawMessage)
}

// families are the components that have scenarios, by their folders.
func families(covered *coverage) map[string]family {
	without := func(environ ...string) []string { return append(environ, "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false") }
	return map[string]family{
		"accounts": {
			kinds: []string{ghostKind, riverjobs.AdjournedGroupDeletion, kind}, begin: beginAccounts,
			deletions: []string{"soft", "hard"},
			installed: true, killed: true,
		},
		"loose_foreign_keys": {kinds: []string{kind}, begin: dbtest.New, deletions: []string{"any"}},
		"ghost_users": {
			kinds: []string{ghostKind}, environ: without("SEXTON_GHOST_USERS__ENABLED=true"), begin: dbtest.Reference,
			deletions: []string{"soft", "hard"},
			refusal:   `SELECT last_error FROM users_ghost_user_migrations WHERE 2 = (SELECT count(*) FROM users WHERE username IN ('ada', 'ben'))`,
			seen:      covered.note,
		},
		"placeholder_users": {
			kinds: []string{riverjobs.PlaceholderCleanup}, begin: dbtest.Reference, deletions: []string{"any"},
			environ: without("SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_PLACEHOLDER_USERS__ENABLED=true"),
		},
		"adjourned_groups": {
			kinds: []string{riverjobs.AdjournedGroupDeletion}, begin: dbtest.Reference, deletions: []string{"any"},
			environ: without("SEXTON_ADJOURNED_GROUPS__ENABLED=true"),
		},
		"external_diffs": {
			kinds: []string{riverjobs.ScheduleExternalDiffs}, begin: dbtest.Reference, deletions: []string{"any"},
			environ: without("SEXTON_EXTERNAL_DIFFS__ENABLED=true", "SEXTON_EXTERNAL_DIFFS__BUCKET=file://."),
		},
	}
}

// TestScenarios plays each component's scenarios, each in the database of its family.
func TestScenarios(t *testing.T) {
	t.Parallel()
	covered := &coverage{seen: map[string]bool{}}
	t.Run("of", func(t *testing.T) {
		for component, f := range families(covered) {
			if !pgtest.Long {
				f.deletions = f.deletions[:1]
			}
			folder := filepath.Join(scenarios, component)
			given := pgtest.Must(fs.Glob(os.DirFS(folder), "*/given.sql"))(t)
			require.Len(t, given, len(pgtest.Must(fs.Glob(os.DirFS(folder), "*/then.sql"))(t))+
				len(pgtest.Must(fs.Glob(os.DirFS(folder), "*/error.txt"))(t)),
				"each scenario of %s has a given.sql, and either a then.sql or an error.txt", component)
			require.NotEmpty(t, given, "scenarios of %s", component)
			for _, deletion := range f.deletions {
				t.Run(component+"/"+deletion, func(t *testing.T) {
					t.Parallel()
					shared := sync.OnceValue(func() *dbtest.DB { return f.begin(t) })
					for _, given := range given {
						t.Run(filepath.Dir(given), func(t *testing.T) {
							s := newScenario(t, f, folder, filepath.Dir(given), shared)
							if deletion != f.deletions[0] &&
								!strings.Contains(strings.Join(s.text(t, "when.sql"), ""), "$1") {
								t.Skip("it is the same as " + f.deletions[0])
							}
							s.play(t, deletion)
							if f.killed && pgtest.Long {
								s.playKilled(t, deletion)
							}
						})
					}
				})
			}
		}
	})
	unseen := slices.DeleteFunc(defaultFates(t), func(fate string) bool {
		return covered.seen[fate] || !pgtest.Long && strings.HasPrefix(fate, "hard")
	})
	require.Empty(t, unseen, "what is done to contributions by default and no scenario shows")
}

// coverage collects what scenarios of ghost users with the default lists have seen done,
// as "soft moved issues.author_id".
type coverage struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (c *coverage) note(t *testing.T, deletion string, text json.RawMessage) {
	var stats ghostuser.Stats
	require.NoError(t, json.Unmarshal(text, &stats))
	require.EqualValues(t, 1, stats.UsersProcessed)
	c.mu.Lock()
	defer c.mu.Unlock()
	for did, columns := range map[string]map[string]int64{
		" moved ": stats.Moved, " deleted ": stats.Deleted,
		" nullified ": stats.Nullified,
	} {
		for column := range columns {
			c.seen[deletion+did+column] = true
		}
	}
}

// defaultFates is all that the default lists, and the keys of the reference application
// that none of them names, have done.
func defaultFates(t *testing.T) []string {
	c := pgtest.Must(config.Load(config.Options{
		DatabaseURL: "postgres://nobody@nowhere.invalid/none",
		Dir:         t.TempDir(),
	}))(t)
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

// killStep is the number of messages between two kills of [scenarioRun.playKilled].
const killStep = 11

// scenarioRun is a database in the state of given.sql, and the program's own way to run a
// pass on it.
type scenarioRun struct {
	family

	folders [2]string // of the component and of the scenario
	db      *dbtest.DB
	deps    riverjobs.Deps
	// bound is the installation of the component, if it has one of its own.
	bound *installation.Bound
}

// beginAccounts makes a database of the application with accounts, as its configuration
// installs it.
func beginAccounts(tb testing.TB) *dbtest.DB {
	folder := filepath.Join(scenarios, "accounts")
	return &dbtest.DB{Database: pgtest.FromTemplate(tb, folder, func(ctx context.Context, url string) error {
		if err := execute(ctx, url, filepath.Join(folder, "schema.sql")); err != nil {
			return err
		}
		c, err := config.Load(config.Options{
			Path:    filepath.Join(folder, "sexton.yaml"),
			Environ: []string{"DATABASE_URL=" + url},
		})
		if err != nil {
			return err
		}
		bound, err := installation.Install(ctx, c, slog.New(slog.DiscardHandler))
		if err == nil {
			bound.Close()
		}
		return err
	})}
}

// execute runs the statements of a file.
func execute(ctx context.Context, url, file string) error {
	sql, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, string(sql))
	return errors.Join(err, conn.Close(ctx))
}

// wipe empties the tables of the application and forgets what was done to them.
const wipe = `
DO $$
DECLARE
    used regclass;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR used IN
        SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND (relnamespace = 'public'::regnamespace
            OR relnamespace = 'sexton'::regnamespace AND (relname ~ '^undo_(rest|[0-9]+)$' OR
                relname IN ('events', 'river_job', 'swept', 'group_destructions', 'group_deletion_failures', 'external_diffs', 'external_diff_removals',
                    'external_diff_cursors', 'external_diff_stores')))
    LOOP
        EXECUTE format('DELETE FROM %s', used);
    END LOOP;
    IF to_regclass('users') IS NOT NULL THEN
        ALTER TABLE users ALTER id RESTART;
    END IF;
END $$`

var changesSchema = regexp.MustCompile(`(CREATE|ALTER) TABLE`)

// newScenario takes the shared database, as a copy of its own costs more than the whole
// scenario, unless given.sql changes the schema.
func newScenario(t *testing.T, f family, component, name string, shared func() *dbtest.DB) *scenarioRun {
	s := &scenarioRun{family: f, folders: [2]string{component, filepath.Join(component, name)}}
	given := s.text(t, "given.sql")
	if changesSchema.MatchString(strings.Join(given, "")) {
		s.db = f.begin(t)
	} else {
		s.db = shared()
	}
	s.reset(t)
	options := config.Options{DatabaseURL: s.db.URL, Dir: t.TempDir(), Environ: f.environ}
	for _, folder := range s.folders {
		if path := filepath.Join(folder, "sexton.yaml"); exists(path) {
			options.Path = pgtest.Must(filepath.Abs(path))(t)
		}
	}
	if f.installed {
		options.DatabaseURL, options.Environ = "", append(options.Environ, "DATABASE_URL="+s.db.URL)
	}
	c := pgtest.Must(config.Load(options))(t)
	s.deps = riverjobs.Deps{Config: c, Logger: pgtest.Logger(t)}
	if f.installed {
		s.bound = pgtest.Must(installation.Bind(t.Context(), c))(t)
		t.Cleanup(s.bound.Close)
		s.db.Connected, s.deps.Definitions = s.bound.Jobs(), s.bound.Definitions
		return s
	}
	if yaml := s.text(t, "definitions.yml")[1]; yaml != "" {
		s.deps.Definitions = pgtest.Must(definitions.Parse(definitions.File{
			Name: "definitions.yml",
			Data: []byte(yaml),
		}))(t)
	}
	for _, d := range s.deps.Definitions {
		s.db.TrackKeys(t, triggers.Parent{
			Schema: cmp.Or(d.Parent.Schema, "public"), Table: d.Parent.Table,
			KeyColumns: []string{"id"},
		})
	}
	for _, k := range riverjobs.Kinds(c) {
		s.db.Exec(`INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults) VALUES ($1, $1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
			k.Kind, k.Cron, k.MaxAttempts, k.Args, k.Defaults)
	}
	return s
}

// reset brings the database to the state of given.sql.
func (s *scenarioRun) reset(t *testing.T) {
	s.db.Exec(wipe)
	for _, sql := range s.text(t, "given.sql") {
		s.db.Exec(sql)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func read(t *testing.T, path string) string {
	return string(pgtest.Must(os.ReadFile(path))(t))
}

// text returns the texts of the component's and of the scenario's file; one that is not
// there is empty.
func (s *scenarioRun) text(t *testing.T, name string) []string {
	return render.Each(s.folders[:], func(folder string) string {
		if !exists(filepath.Join(folder, name)) {
			return ""
		}
		return read(t, filepath.Join(folder, name))
	})
}

// play has the work done and expects the rows of then.sql, or the reason why nothing was
// done.
func (s *scenarioRun) play(t *testing.T, deletion string) {
	s.ask(t, deletion)
	reports := s.worked(t)
	if reason := s.text(t, "error.txt")[1]; reason != "" {
		require.Equal(t, [][]string{{strings.TrimSpace(reason)}}, s.db.Rows(s.refusal))
		return
	}
	for _, report := range reports {
		var stats struct{ Errors []json.RawMessage }
		require.NoError(t, json.Unmarshal(report.Stats, &stats))
		require.Empty(t, stats.Errors, report.Kind)
	}
	if s.seen != nil && s.text(t, "sexton.yaml")[1] == "" {
		s.seen(t, deletion, reports[0].Stats)
	}
	s.check(t, deletion)
	if s.text(t, "undone.sql")[1] != "" {
		s.undo(t)
		s.checkUndone(t, deletion)
	}
}

// playKilled is play with a worker, and then an undo, that is killed anywhere. Another
// process continues.
func (s *scenarioRun) playKilled(t *testing.T, deletion string) {
	undone := s.text(t, "undone.sql")[1] != ""
	kills := s.db.KillEvery(t, killStep, func(v *dbtest.Victim) {
		s.reset(t)
		s.ask(t, deletion)
		db := v.Connected(t)
		survives := func(err error) {
			if !v.Killed() {
				require.NoError(t, err)
			}
			s.db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp()")
		}
		_, err := s.passes(t, db, "killed")
		survives(err)
		s.worked(t)
		s.check(t, deletion)
		if undone {
			if !v.Killed() {
				survives(s.restore(t, db, "killed"))
			}
			s.undo(t)
			s.checkUndone(t, deletion)
		}
	})
	require.NotZero(t, kills)
}

// ask runs when.sql.
func (s *scenarioRun) ask(t *testing.T, deletion string) {
	for _, sql := range s.text(t, "when.sql") {
		args := []any{}
		if strings.Contains(sql, "$1") {
			args = append(args, deletion == "hard")
		}
		s.db.Exec(sql, args...)
	}
}

// check expects the rows of then.sql and nothing left. Another run does not change that.
func (s *scenarioRun) check(t *testing.T, deletion string) {
	query, expected := expectation(t, s.text(t, "then.sql")[1], deletion)
	require.Equal(t, expected, s.lines(query), "rows of %s", query)
	require.Empty(t, s.lines(s.text(t, "left.sql")[0]))
	for _, again := range s.worked(t) {
		require.Empty(t, s.db.Rows("SELECT kind FROM sexton.runs WHERE id = $1 AND changed", again.RunID),
			"the second run")
	}
	require.Equal(t, expected, s.lines(query), "rows after the second run")
}

// checkUndone expects the rows of undone.sql, which a run of the worker does not change.
func (s *scenarioRun) checkUndone(t *testing.T, deletion string) {
	query, expected := expectation(t, s.text(t, "undone.sql")[1], deletion)
	for range 2 {
		require.Equal(t, expected, s.lines(query), "rows of %s", query)
		require.Empty(t, s.lines(s.text(t, "left.sql")[0]))
		s.worked(t)
	}
}

// leases are those of a process that works over the connections of a database.
func (s *scenarioRun) leases(db database.Database, holder string) *lease.Manager {
	leases := &lease.Manager{Jobs: db, Holder: holder + " of " + s.db.Name}
	if s.bound != nil {
		leases.Digests = riverjobs.GenerationDigests(s.bound.Generations())
	}
	return leases
}

// worked runs the passes of a process that does all of its work.
func (s *scenarioRun) worked(t *testing.T) []jobrun.Report {
	reports := pgtest.Must(s.passes(t, s.db.Connected, "worker"))(t)
	for _, report := range reports {
		require.Equal(t, jobrun.Done, report.Outcome, "%s: %s", report.Kind, report.Reason)
	}
	return reports
}

// passes runs a pass of each kind and the jobs that it has inserted. A job is removed
// once it is done.
func (s *scenarioRun) passes(t *testing.T, db database.Database, holder string) (reports []jobrun.Report, err error) {
	deps := s.deps
	deps.Bindings, deps.Databases = &riverjobs.Bindings{}, []database.Database{db}
	deps.Runner = &jobrun.Runner{Leases: s.leases(db, holder), Logger: deps.Logger}
	jobs := riverjobs.Jobs(deps.Config)
	run := func(kind, args string) error {
		job := jobs[slices.IndexFunc(jobs, func(job riverjobs.Job) bool { return job.Kind == kind })]
		report, err := job.Run(t.Context(), deps, riverjobs.Pass{Database: "main", Args: json.RawMessage(args)})
		reports = append(reports, report)
		return err
	}
	for _, kind := range s.kinds {
		if err := run(kind, "{}"); err != nil {
			return reports, err
		}
		for _, job := range s.db.Rows("SELECT id, kind, args FROM sexton.river_job ORDER BY id") {
			if err := run(job[1], job[2]); err != nil {
				return reports, err
			}
			s.db.Exec("DELETE FROM sexton.river_job WHERE id = $1::text::bigint", job[0])
		}
	}
	return reports, nil
}

// undo has all deletions undone that are kept.
func (s *scenarioRun) undo(t *testing.T) {
	require.NoError(t, s.restore(t, s.db.Connected, "operator"))
}

// restore undoes the deletions that are kept, the last one first.
func (s *scenarioRun) restore(t *testing.T, db database.Database, holder string) error {
	engine := s.bound.Undo(holder, []database.Database{db})
	engine.Leases = s.leases(db, undo.Holder+holder)
	units, err := engine.List(t.Context(), 100)
	if err != nil {
		return err
	}
	for _, unit := range units {
		report, err := engine.Restore(t.Context(), unit.ID, false)
		if err != nil {
			return err
		}
		require.Empty(t, report.Left)
	}
	return nil
}

func (s *scenarioRun) lines(query string) []string {
	return render.Each(s.db.Rows(query), func(row []string) string { return strings.Join(row, " | ") })
}

// expectation takes a then.sql apart: the query, and the rows that are expected after
// that sort of deletion.
func expectation(t *testing.T, text, deletion string) (query string, rows []string) {
	rows = []string{}
	applies, found := false, false
	for line := range strings.Lines(text) {
		comment, is := strings.CutPrefix(strings.TrimSpace(line), "--")
		comment = strings.TrimSpace(comment)
		switch {
		case !is:
			query += line
		case comment == "any:" || comment == "soft:" || comment == "hard:" || comment == "soft and hard:":
			applies = comment == "any:" || strings.Contains(comment, deletion)
			found = found || applies
		case applies && comment != "" && comment != "(none)":
			rows = append(rows, comment)
		}
	}
	require.True(t, found, "then.sql says nothing of a %s delete", deletion)
	return strings.TrimSpace(query), rows
}
