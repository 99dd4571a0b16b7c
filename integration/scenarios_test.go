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

// scenarios is the folder of the scenarios: one folder per component, and in it one
// folder per scenario. If component and scenario have a given.sql or when.sql, the
// component's runs first.
//
//	given.sql        inserts rows or creates tables
//	when.sql         requests the deletion; the optional $1 is true for a hard deletion
//	sexton.yaml      optional settings of the scenario
//	definitions.yml  optional loose foreign keys of the scenario
//	left.sql         query of the component for rows that no scenario may leave
//	then.sql         query of the scenario, with its expected rows as comments per kind of deletion
//	undone.sql       like then.sql, after all deletions were undone, the last one first
//	error.txt        expected error, instead of then.sql
//
// The folder accounts has scenarios of an application with other tables, in which all
// jobs run. schema.sql creates its tables, and sexton.yaml and definitions.yml apply to
// all scenarios of the folder.
const scenarios = "testdata/scenarios"

// scenarioGroup describes how the scenarios of one component run.
type scenarioGroup struct {
	// kinds are the kinds of jobs that a scenario runs. The component's kind is the
	// first. After each run, the jobs that it has inserted run.
	kinds   []string
	environ []string
	// newDB returns the database that scenarios share. A scenario that creates or alters
	// tables gets a database of its own.
	newDB func(testing.TB) *dbtest.DB
	// deletions are the kinds of deletion. Only the long tests use the kinds after the
	// first one.
	deletions []string
	// refusal is a query for the error of a scenario with an error.txt.
	refusal string
	// installed is true if newDB has installed the component with its sexton.yaml and
	// definitions.yml.
	installed bool
	// killed is true if the long tests also run the scenarios with workers that are
	// killed.
	killed bool
	// onStats, if set, is called with the statistics of each run with default settings.
	onStats func(t *testing.T, deletion string, stats json.RawMessage)
}

// scenarioGroups returns the components with scenarios by their folders.
func scenarioGroups(covered *coverage) map[string]scenarioGroup {
	without := func(environ ...string) []string { return append(environ, "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false") }
	return map[string]scenarioGroup{
		"accounts": {
			kinds: []string{ghostKind, riverjobs.AdjournedGroupDeletion, kind}, newDB: newAccountsDB,
			deletions: []string{"soft", "hard"},
			installed: true, killed: true,
		},
		"loose_foreign_keys": {kinds: []string{kind}, newDB: dbtest.New, deletions: []string{"any"}},
		"ghost_users": {
			kinds: []string{ghostKind}, environ: without("SEXTON_GHOST_USERS__ENABLED=true"), newDB: dbtest.Reference,
			deletions: []string{"soft", "hard"},
			refusal:   `SELECT last_error FROM users_ghost_user_migrations WHERE 2 = (SELECT count(*) FROM users WHERE username IN ('ada', 'ben'))`,
			onStats:   covered.record,
		},
		"placeholder_users": {
			kinds: []string{riverjobs.PlaceholderCleanup}, newDB: dbtest.Reference, deletions: []string{"any"},
			environ: without("SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_PLACEHOLDER_USERS__ENABLED=true"),
		},
		"adjourned_groups": {
			kinds: []string{riverjobs.AdjournedGroupDeletion}, newDB: dbtest.Reference, deletions: []string{"any"},
			environ: without("SEXTON_ADJOURNED_GROUPS__ENABLED=true"),
		},
		"external_diffs": {
			kinds: []string{riverjobs.ScheduleExternalDiffs}, newDB: dbtest.Reference, deletions: []string{"any"},
			environ: without("SEXTON_EXTERNAL_DIFFS__ENABLED=true", "SEXTON_EXTERNAL_DIFFS__BUCKET=file://."),
		},
	}
}

// TestScenarios runs the scenarios of each component, and requires that the scenarios of
// ghost users cover all entries of the default lists.
func TestScenarios(t *testing.T) {
	t.Parallel()
	covered := &coverage{seen: map[string]bool{}}
	t.Run("of", func(t *testing.T) {
		for component, f := range scenarioGroups(covered) {
			if !pgtest.Long {
				f.deletions = f.deletions[:1]
			}
			folder := filepath.Join(scenarios, component)
			given := pgtest.Must(fs.Glob(os.DirFS(folder), "*/given.sql"))(t)
			require.Len(t, given, len(pgtest.Must(fs.Glob(os.DirFS(folder), "*/then.sql"))(t))+
				len(pgtest.Must(fs.Glob(os.DirFS(folder), "*/error.txt"))(t)),
				"each scenario of %s must have a given.sql, and either a then.sql or an error.txt", component)
			require.NotEmpty(t, given, "scenarios of %s", component)
			for _, deletion := range f.deletions {
				t.Run(component+"/"+deletion, func(t *testing.T) {
					t.Parallel()
					shared := sync.OnceValue(func() *dbtest.DB { return f.newDB(t) })
					for _, given := range given {
						t.Run(filepath.Dir(given), func(t *testing.T) {
							s := newScenario(t, f, folder, filepath.Dir(given), shared)
							if deletion != f.deletions[0] &&
								!strings.Contains(strings.Join(s.text(t, "when.sql"), ""), "$1") {
								t.Skip("the scenario does not depend on the kind of deletion")
							}
							s.runAndCheck(t, deletion)
							if f.killed && pgtest.Long {
								s.runKilled(t, deletion)
							}
						})
					}
				})
			}
		}
	})
	missing := slices.DeleteFunc(defaultOutcomes(t), func(outcome string) bool {
		return covered.seen[outcome] || !pgtest.Long && strings.HasPrefix(outcome, "hard")
	})
	require.Empty(t, missing, "outcomes of the default lists without a scenario")
}

// coverage collects the outcomes in the scenarios of ghost users with the default lists,
// such as "soft moved issues.author_id".
type coverage struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (c *coverage) record(t *testing.T, deletion string, text json.RawMessage) {
	var stats ghostuser.Stats
	require.NoError(t, json.Unmarshal(text, &stats))
	require.EqualValues(t, 1, stats.UsersProcessed)
	c.mu.Lock()
	defer c.mu.Unlock()
	for action, columns := range map[string]map[string]int64{
		" moved ": stats.Moved, " deleted ": stats.Deleted,
		" nullified ": stats.Nullified,
	} {
		for column := range columns {
			c.seen[deletion+action+column] = true
		}
	}
}

// defaultOutcomes returns the outcomes of the default lists, and of the foreign keys of
// the reference application that the lists do not contain.
func defaultOutcomes(t *testing.T) []string {
	c := pgtest.Must(config.Load(config.Options{
		DatabaseURL: "postgres://nobody@nowhere.invalid/none",
		Dir:         t.TempDir(),
	}))(t)
	var outcomes []string
	moved := map[string]bool{}
	for _, entry := range c.GhostUsers.Move {
		for _, column := range entry.Columns {
			label := entry.Table + "." + column
			moved[label] = len(entry.Conditions) == 0
			outcomes = append(outcomes, "soft moved "+label)
			if entry.Always {
				outcomes = append(outcomes, "hard moved "+label)
			}
		}
	}
	listed := map[string]bool{}
	add := func(action, table string, columns []string) {
		for _, column := range columns {
			label := table + "." + column
			listed[label] = true
			outcomes = append(outcomes, "hard "+action+" "+label)
			if !moved[label] {
				outcomes = append(outcomes, "soft "+action+" "+label)
			}
		}
	}
	for _, entry := range c.GhostUsers.Delete {
		add("deleted", entry.Table, entry.Columns)
	}
	for _, entry := range c.GhostUsers.Nullify {
		add("nullified", entry.Table, entry.Columns)
	}
	require.Greater(t, len(outcomes), 70, "outcomes of the default lists")
	for _, key := range dbtest.Reference(t).Rows(`
		SELECT conrelid::regclass || '.' || attname, CASE confdeltype WHEN 'c' THEN 'deleted' ELSE 'nullified' END
		FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
		WHERE contype = 'f' AND confrelid = 'users'::regclass AND conrelid <> 'users_ghost_user_migrations'::regclass AND conparentid = 0`) {
		label := key[0]
		if _, is := moved[label]; !is && !listed[label] {
			outcomes = append(outcomes, "soft "+key[1]+" "+label, "hard "+key[1]+" "+label)
		} else if always := slices.Contains(outcomes, "hard moved "+label); is && !listed[label] && !always {
			outcomes = append(outcomes, "hard "+key[1]+" "+label)
		}
	}
	return outcomes
}

// killStep is the number of messages between two kills of [scenarioRun.runKilled].
const killStep = 11

// scenarioRun is a scenario with its database in the state of given.sql, and with the
// dependencies of its jobs.
type scenarioRun struct {
	scenarioGroup

	// folders holds the folder of the component and the folder of the scenario.
	folders [2]string
	db      *dbtest.DB
	deps    riverjobs.Deps
	// bound is the component's installation if installed is set, otherwise nil.
	bound *installation.Bound
}

// newAccountsDB returns a database of the application with accounts, installed by its
// configuration.
func newAccountsDB(tb testing.TB) *dbtest.DB {
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

// wipe empties the tables of the application and the tables of Sexton that record work.
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

// newScenario returns a scenario in the shared database, because a copy costs more than
// running the scenario. If given.sql changes the schema, the scenario gets a database of
// its own.
func newScenario(t *testing.T, f scenarioGroup, component, name string, shared func() *dbtest.DB) *scenarioRun {
	s := &scenarioRun{scenarioGroup: f, folders: [2]string{component, filepath.Join(component, name)}}
	given := s.text(t, "given.sql")
	if changesSchema.MatchString(strings.Join(given, "")) {
		s.db = f.newDB(t)
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

// text returns the content of the component's and of the scenario's file. The content of
// a missing file is empty.
func (s *scenarioRun) text(t *testing.T, name string) []string {
	return render.Each(s.folders[:], func(folder string) string {
		if !exists(filepath.Join(folder, name)) {
			return ""
		}
		return read(t, filepath.Join(folder, name))
	})
}

// runAndCheck runs the jobs and requires the rows of then.sql or the error of error.txt.
func (s *scenarioRun) runAndCheck(t *testing.T, deletion string) {
	s.runWhen(t, deletion)
	reports := s.runPasses(t)
	if reason := s.text(t, "error.txt")[1]; reason != "" {
		require.Equal(t, [][]string{{strings.TrimSpace(reason)}}, s.db.Rows(s.refusal))
		return
	}
	for _, report := range reports {
		var stats struct{ Errors []json.RawMessage }
		require.NoError(t, json.Unmarshal(report.Stats, &stats))
		require.Empty(t, stats.Errors, report.Kind)
	}
	if s.onStats != nil && s.text(t, "sexton.yaml")[1] == "" {
		s.onStats(t, deletion, reports[0].Stats)
	}
	s.check(t, deletion)
	if s.text(t, "undone.sql")[1] != "" {
		s.undo(t)
		s.checkUndone(t, deletion)
	}
}

// runKilled runs the scenario repeatedly with a worker, and then an undo, that is killed
// at different messages. Another process must finish the work.
func (s *scenarioRun) runKilled(t *testing.T, deletion string) {
	undone := s.text(t, "undone.sql")[1] != ""
	kills := s.db.KillEvery(t, killStep, func(v *dbtest.Victim) {
		s.reset(t)
		s.runWhen(t, deletion)
		db := v.Connected(t)
		requireSurvival := func(err error) {
			if !v.Killed() {
				require.NoError(t, err)
			}
			s.db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp()")
		}
		_, err := s.tryPasses(t, db, "killed")
		requireSurvival(err)
		s.runPasses(t)
		s.check(t, deletion)
		if undone {
			if !v.Killed() {
				requireSurvival(s.restore(t, db, "killed"))
			}
			s.undo(t)
			s.checkUndone(t, deletion)
		}
	})
	require.NotZero(t, kills)
}

// runWhen runs when.sql.
func (s *scenarioRun) runWhen(t *testing.T, deletion string) {
	for _, sql := range s.text(t, "when.sql") {
		args := []any{}
		if strings.Contains(sql, "$1") {
			args = append(args, deletion == "hard")
		}
		s.db.Exec(sql, args...)
	}
}

// check requires the rows of then.sql and no rows of left.sql. A second run must change
// nothing.
func (s *scenarioRun) check(t *testing.T, deletion string) {
	query, expected := expectation(t, s.text(t, "then.sql")[1], deletion)
	require.Equal(t, expected, s.lines(query), "rows of %s", query)
	require.Empty(t, s.lines(s.text(t, "left.sql")[0]))
	for _, again := range s.runPasses(t) {
		require.Empty(t, s.db.Rows("SELECT kind FROM sexton.runs WHERE id = $1 AND changed", again.RunID),
			"the second run")
	}
	require.Equal(t, expected, s.lines(query), "rows after the second run")
}

// checkUndone requires the rows of undone.sql, also after another run of the worker.
func (s *scenarioRun) checkUndone(t *testing.T, deletion string) {
	query, expected := expectation(t, s.text(t, "undone.sql")[1], deletion)
	for range 2 {
		require.Equal(t, expected, s.lines(query), "rows of %s", query)
		require.Empty(t, s.lines(s.text(t, "left.sql")[0]))
		s.runPasses(t)
	}
}

// leases returns the lease manager of a process that uses the connections of db.
func (s *scenarioRun) leases(db database.Database, holder string) *lease.Manager {
	leases := &lease.Manager{Jobs: db, Holder: holder + " of " + s.db.Name}
	if s.bound != nil {
		leases.Digests = riverjobs.GenerationDigests(s.bound.Generations())
	}
	return leases
}

// runPasses runs all jobs, which must succeed, and returns their reports.
func (s *scenarioRun) runPasses(t *testing.T) []jobrun.Report {
	reports := pgtest.Must(s.tryPasses(t, s.db.Connected, "worker"))(t)
	for _, report := range reports {
		require.Equal(t, jobrun.Done, report.Outcome, "%s: %s", report.Kind, report.Reason)
	}
	return reports
}

// tryPasses runs a job of each kind and the jobs that it has inserted. It removes each
// job after it ran.
func (s *scenarioRun) tryPasses(t *testing.T, db database.Database, holder string) (reports []jobrun.Report, err error) {
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

// undo restores all deletions whose rows were saved, which must succeed.
func (s *scenarioRun) undo(t *testing.T) {
	require.NoError(t, s.restore(t, s.db.Connected, "operator"))
}

// restore restores all deletions whose rows were saved, the last one first.
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

// expectation returns the query of a then.sql and the rows that it lists for the kind of
// deletion.
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
	require.True(t, found, "then.sql must list the rows after a %s deletion", deletion)
	return strings.TrimSpace(query), rows
}
