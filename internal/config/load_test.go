package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

const url = "postgres://app@localhost:5432/app"

// folder returns a new folder with a sexton.yaml that contains text.
func folder(t *testing.T, text string) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, config.DefaultFile), []byte(text), 0o600))
	return dir
}

// load loads text as sexton.yaml. The errors have the path of the file without the
// folder.
func load(t *testing.T, text string, environ ...string) (*config.Config, error) {
	dir := folder(t, text)
	c, err := config.Load(config.Options{Dir: dir, Environ: environ})
	return c, withoutFolder(dir, err)
}

func withoutFolder(dir string, err error) error {
	list, ok := errors.AsType[problem.List](err)
	if !ok {
		return err
	}
	for i := range list {
		if path, relErr := filepath.Rel(dir, list[i].Position.File); relErr == nil {
			list[i].Position.File = path
		}
	}
	return list
}

func TestLoadGivesDefaultsToADatabaseURL(t *testing.T) {
	t.Parallel()

	pgtest.Each(t, map[string]config.Options{
		"flag":     {DatabaseURL: url},
		"variable": {Environ: []string{"DATABASE_URL=" + url}},
		"flag before variable": {
			DatabaseURL: url, Environ: []string{"DATABASE_URL=postgres://other@localhost/other"},
		},
		"URL in a SEXTON_ variable": {Environ: []string{"SEXTON_DATABASES__MAIN__URL=" + url}},
	}, func(t *testing.T, _ string, options config.Options) {
		dir := t.TempDir()
		options.Dir = dir
		c := pgtest.Must(config.Load(options))(t)
		require.Equal(t, []config.Database{{
			Name: "main", URL: url, Schema: "public", SearchPath: "auto",
			Pace: config.Adaptive,
		}}, c.Databases)
		require.Equal(t, config.Jobs{
			Database: "main", Owner: "sexton_owner", MaxWorkers: 10, Silence: 15 * time.Second, Reindex: "0 3 * * *",
			LockTimeout: time.Second, StatementTimeout: 5 * time.Second, ReplicaLag: 10 * time.Second,
			ReplicaLagBytes: 256 << 20,
		}, c.Jobs)
		require.Equal(t, config.LooseForeignKeys{
			Enabled: true, Schedule: "* * * * *", Definitions: []string{filepath.Join(dir, "loose_foreign_keys.yml")},
			Truncate: config.TruncateReject, Target: 20 * time.Millisecond, Duty: config.Auto, Connections: 2,
			ConfirmAfter: 10 * time.Minute,
			Undo:         config.Undo{MaxRow: 16 << 20, LargeRows: config.LeftOut, WhenFull: config.LeftOut},
		}, c.LooseForeignKeys)
		require.Equal(t, config.HTTP{Listen: "127.0.0.1:8686", ReadOnly: true}, c.HTTP)
		require.Equal(t, config.Log{Level: "info", Format: config.FormatAuto}, c.Log)
		require.False(t, c.GhostUsers.Enabled || c.PlaceholderUsers.Enabled || c.AdjournedGroups.Enabled ||
			c.ExternalDiffs.Enabled)
	})
}

func TestLoadReadsAnExampleWithTwoDatabases(t *testing.T) {
	t.Parallel()

	c := pgtest.Must(load(t, `
databases:
  main: {url: "${DATABASE_URL}", schema: public, pace: turbo, limits: {deletes: 5}}
  ci:   {url: "${CI_DATABASE_URL}", tables: ["ci_*", "p_ci_*"]}
jobs: {database: ci, max_workers: 10}
loose_foreign_keys: {enabled: true, schedule: "* * * * *", definitions: [loose_foreign_keys.yml]}
ghost_users:        {enabled: false, schedule: "*/2 * * * *", limit: 1000, max_runtime: 60s, retry_after: 30m}
placeholder_users:  {enabled: false, schedule: "0 0 * * *", max_attempts: 15, retry_period: 48h, spacing: 1s}
adjourned_groups:   {enabled: false, schedule: "0 2 * * *", batch_size: 100, spacing: 20s}
external_diffs:     {enabled: false, schedule: "15 * * * *", when: always, limit: 1000, bucket: "file:///var/lib/sexton/diffs"}
http: {listen: "127.0.0.1:8686"}
log:  {level: info, format: auto}
`, "DATABASE_URL="+url, "CI_DATABASE_URL=host=localhost dbname=ci password=geheim"))(t)
	require.Equal(t, []config.Database{
		{
			Name: "main", URL: url, Schema: "public", SearchPath: "auto", Pace: config.Turbo,
			Limits: config.Limits{Deletes: 5},
		},
		{
			Name: "ci", URL: "host=localhost dbname=ci password=geheim", Schema: "public", SearchPath: "auto",
			Pace:   config.Adaptive,
			Tables: []string{"ci_*", "p_ci_*"},
		},
	}, c.Databases)
	require.Equal(t, "ci", c.Jobs.Database)
	require.Equal(t, config.Limits{Deletes: 5, Updates: 150_000, Runtime: 45 * time.Second},
		c.Databases[0].EffectiveLimits())
	require.Equal(t, config.Limits{Runtime: 30 * time.Second}, c.Databases[1].EffectiveLimits())

	ci, ok := c.Database("ci")
	require.True(t, ok)
	require.Equal(t, c.Databases[1], ci)
	_, ok = c.Database("sec")
	require.False(t, ok)
}

func TestLoadReportsEverythingInOneRun(t *testing.T) {
	t.Parallel()

	_, err := config.Load(config.Options{Path: "testdata/broken.yaml", Environ: []string{
		"SEXTON_LOG__LEVLE=info", "SEXTON_LOG=info", "SEXTON_JOBS_SCHEMA=x", "SEXTON_DATABASES__MIAN__PACE=turbo",
		"SEXTON_ADJOURNED_GROUPS__SPACING=soon", "SEXTON_CONFIG=unused.yaml", "SEXTON_PG_BIN=/usr/bin",
		"SEXTON_OTHER=1",
	}})
	require.Error(t, err)
	want, readErr := os.ReadFile("testdata/broken.txt")
	require.NoError(t, readErr)
	require.Empty(t, cmp.Diff(string(want), err.Error()+"\n"))
	require.NotContains(t, err.Error(), "geh")
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()

	const noDatabase = ": no database is configured (set DATABASE_URL or --database-url, or write into sexton.yaml: " +
		`databases: {main: {url: "postgres://user:password@host:5432/database"}})`
	with := func(text string) string { return "databases: {main: {url: \"" + url + "\"}}\n" + text }
	type example struct{ text, want string }
	pgtest.Each(t, map[string]example{
		"empty file":          {"", "sexton.yaml: databases" + noDatabase},
		"empty databases":     {"databases:\n", "sexton.yaml: databases" + noDatabase},
		"top level is a list": {"- databases\n", "sexton.yaml:1:1: the top level must be a mapping of keys"},
		"databases as list": {
			"databases: [main]\n",
			"sexton.yaml:1:12: databases: must be a mapping of names, not a list",
		},
		"no database and an unknown key": {"foo_bar: 1\n", "sexton.yaml: databases" + noDatabase +
			"\nsexton.yaml:1:1: foo_bar: unknown key (known keys: databases, jobs, loose_foreign_keys, ghost_users, placeholder_users, adjourned_groups, external_diffs, retention, http, log)"},
		"empty database": {"databases:\n  main:\n", "sexton.yaml:2:3: databases.main.url: is missing"},
		"empty url": {
			"databases: {main: {url: \"\"}}\n",
			"sexton.yaml:1:25: databases.main.url: is empty (write postgres://user:password@host:5432/database)",
		},
		"unset variable": {
			"databases: {main: {url: \"${NO_URL}\"}}\n",
			"sexton.yaml:1:25: databases.main.url: the environment variable NO_URL is not set",
		},
		"unreadable certificate": {
			"databases: {main: {url: \"" + url +
				"?sslmode=verify-full&sslrootcert=/nowhere/ca.pem\"}}\n",
			"sexton.yaml:1:25: databases.main.url: names a file that cannot be read: no such file or directory",
		},
		"unknown cleaner_class": {
			with("ghost_users:\n  delete:\n    - {table: keys, columns: [user_id], cleaner_class: Broom}\n"),
			"sexton.yaml:4:56: ghost_users.delete[0].cleaner_class: must be Ci::JobArtifacts::LooseForeignKeyCleanerService (write event: true, which does the same)",
		},
		"GitLab's groups with other users": {
			with("ghost_users: {users: {table: accounts}}\nadjourned_groups: {enabled: true}\n"),
			"sexton.yaml:3:29: adjourned_groups.enabled: supports only GitLab's users, because GitLab's groups refer to them " +
				"(set adjourned_groups.groups.table, or remove ghost_users.users)",
		},
		"event for nullified rows": {
			with("ghost_users:\n  nullify:\n    - {table: keys, columns: [user_id], event: true}\n"),
			"sexton.yaml:4:41: ghost_users.nullify[0].event: unknown key (known keys: table, columns)",
		},
		"schema name too long": {
			"databases: {main: {url: \"" + url +
				"\", schema: a234567890123456789012345678901234567890123456789012345678901234}}\n",
			"sexton.yaml:1:70: databases.main.schema: has 64 bytes; Postgres allows 63",
		},
		"owner with a reserved prefix": {
			with("jobs: {owner: pg_monitor}\n"),
			"sexton.yaml:2:15: jobs.owner: must be the name of a role of 1 to 63 bytes, not beginning with pg_",
		},
		"removed schema": {
			with("jobs: {schema: sexton}\n"),
			"sexton.yaml:2:8: jobs.schema: was removed (remove it; the schema is always sexton)",
		},
		"silence too short": {
			with("jobs: {silence: 1s}\n"),
			"sexton.yaml:2:17: jobs.silence: must be between 2s and 10m",
		},
		"too many workers": {
			with("jobs: {max_workers: 20000}\n"),
			"sexton.yaml:2:21: jobs.max_workers: must be between 1 and 10000",
		},
		"no definitions": {
			with("loose_foreign_keys: {definitions: []}\n"),
			"sexton.yaml:2:35: loose_foreign_keys.definitions: is empty (name a file, or set enabled: false)",
		},
		"target and duty out of range": {
			with("loose_foreign_keys: {target: 0s, duty: 101}\n"),
			"sexton.yaml:2:30: loose_foreign_keys.target: must be between 1ms and 1s\nsexton.yaml:2:40: loose_foreign_keys.duty: must be auto, or a percentage from 1 to 100",
		},
		"no connections": {
			with("loose_foreign_keys: {connections: 0}\n"),
			"sexton.yaml:2:35: loose_foreign_keys.connections: must be between 1 and 32",
		},
		"negative replica lag": {
			with("jobs: {replica_lag: -1s, replica_lag_bytes: -1}\n"),
			"sexton.yaml:2:21: jobs.replica_lag: must not be negative; 0s is no limit\nsexton.yaml:2:45: jobs.replica_lag_bytes: must not be negative; 0 is no limit",
		},
		"confirm_after of 0s": {
			with("loose_foreign_keys: {confirm_after: 0s}\n"),
			"sexton.yaml:2:37: loose_foreign_keys.confirm_after: must be longer than 0s",
		},
		"zero timeouts": {
			with("jobs: {lock_timeout: 0s, statement_timeout: 0s}\n"),
			"sexton.yaml:2:22: jobs.lock_timeout: must be longer than 0s\nsexton.yaml:2:45: jobs.statement_timeout: must be longer than 0s",
		},
		"statement_timeout too long": {
			with("jobs: {statement_timeout: 61s}\n"),
			"sexton.yaml:2:27: jobs.statement_timeout: must be at most 1m0s",
		},
		"statement_timeout below lock_timeout": {
			with("jobs: {statement_timeout: 500ms}\n"),
			"sexton.yaml:2:7: jobs.lock_timeout: is 1s, longer than statement_timeout, which is 500ms",
		},
		"listen on all addresses": {
			with("http: {listen: \":8686\"}\n"),
			"sexton.yaml:2:16: http.listen: is reachable from other machines and needs user and password, or a token (set http.user and http.password, or http.token, or listen on 127.0.0.1)",
		},
		"listen without port": {
			with("http: {listen: localhost}\n"),
			"sexton.yaml:2:16: http.listen: must be host:port, such as 127.0.0.1:8686 (write \"\" to disable the server)",
		},
		"password without user": {
			with("http: {password: geheim}\n"),
			"sexton.yaml:2:18: http.password: is set without http.user",
		},
		"removed keys": {
			with("external_diffs: {other_bucket: \"file:///x\", sweep: {every: 1h}}\n"),
			"sexton.yaml:2:18: external_diffs.other_bucket: was removed (copy the objects with a tool of the store and set external_diff_store of the rows)\nsexton.yaml:2:45: external_diffs.sweep: was removed (remove it and run `sexton diffs verify --remove`)",
		},
		"removed value": {
			with("loose_foreign_keys: {truncate: capture}\n"),
			"sexton.yaml:2:32: loose_foreign_keys.truncate: capture was removed (use reject, and DELETE instead of TRUNCATE)",
		},
		"moved keys": {
			with("loose_foreign_keys: {lock_timeout: 7ms, statement_timeout: 6s}\n"),
			"sexton.yaml:2:22: loose_foreign_keys.lock_timeout: was removed (use jobs.lock_timeout)\nsexton.yaml:2:41: loose_foreign_keys.statement_timeout: was removed (use jobs.statement_timeout)",
		},
		"number as password": {
			with("http: {user: a, password: 4711}\n"),
			"sexton.yaml:2:27: http.password: must be a string, not a whole number (put it in quotes)",
		},
	}, func(t *testing.T, _ string, test example) {
		c, err := load(t, test.text)
		require.EqualError(t, err, test.want)
		require.Nil(t, c)
	})
}

func TestLoadAcceptsUncommonValues(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"http: {listen: \"\"}", "http: {listen: \"[::1]:0\"}", "http: {listen: \"localhost:80\"}",
		"http: {listen: \":80\", token: x}",
		"http: {listen: \"0.0.0.0:80\", user: a, password: b}", "http:", "loose_foreign_keys: {enabled: false}",
		"loose_foreign_keys: {schedule: \"CRON_TZ=UTC 0 0 29 2 *\"}", "loose_foreign_keys: {schedule: \"@every 90s\"}",
		"ghost_users: {users: {table: accounts}}\nadjourned_groups: {enabled: false}",
		"adjourned_groups: {enabled: true}",
		"ghost_users: {users: {table: accounts}}\nadjourned_groups: {enabled: true, groups: {table: clubs, marked_on: day}, period: 30d}",
	} {
		_, err := load(t, "databases: {main: {url: \""+url+"\", schema: 'Öl \"x'}}\n"+text+"\n")
		require.NoError(t, err, text)
	}
}

func TestLoadFindsTheFile(t *testing.T) {
	t.Parallel()

	dir := folder(t, "databases: {default: {url: \""+url+"\"}}\n")
	other := filepath.Join(dir, "conf")
	require.NoError(t, os.Mkdir(other, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(other, "other.yaml"), []byte(
		"databases: {other: {url: \""+url+"\"}}\n"+
			"loose_foreign_keys: {definitions: [a.yml, /b.yml, ../c.yml]}\nexternal_diffs: {bucket: \"file://diffs\"}\n"), 0o600))

	name := func(o config.Options) string {
		o.Dir = dir
		return pgtest.Must(config.Load(o))(t).Databases[0].Name
	}
	require.Equal(t, "default", name(config.Options{}))
	require.Equal(t, "default", name(config.Options{Environ: []string{"SEXTON_CONFIG="}}))
	require.Equal(t, "other", name(config.Options{Environ: []string{"SEXTON_CONFIG=conf/other.yaml"}}))
	require.Equal(t, "other", name(config.Options{
		Path:    "conf/other.yaml",
		Environ: []string{"SEXTON_CONFIG=nowhere.yaml"},
	}))
	require.Equal(t, "other", name(config.Options{Path: filepath.Join(other, "other.yaml")}))

	t.Run("paths in the file are relative to its folder", func(t *testing.T) {
		t.Parallel()
		c := pgtest.Must(config.Load(config.Options{
			Dir: dir, Path: "conf/other.yaml",
			Environ: []string{"SEXTON_LOOSE_FOREIGN_KEYS__TRUNCATE=ignore"},
		}))(t)
		require.Equal(t, []string{filepath.Join(other, "a.yml"), "/b.yml", filepath.Join(dir, "c.yml")},
			c.LooseForeignKeys.Definitions)
		require.Equal(t, config.URL("file://"+filepath.Join(other, "diffs")), c.ExternalDiffs.Bucket)
	})
	t.Run("paths in variables are relative to the working directory", func(t *testing.T) {
		t.Parallel()
		c := pgtest.Must(config.Load(config.Options{Dir: dir, Path: "conf/other.yaml", Environ: []string{
			"SEXTON_LOOSE_FOREIGN_KEYS__DEFINITIONS=a.yml, b.yml", "SEXTON_EXTERNAL_DIFFS__BUCKET=file://./diffs",
		}}))(t)
		require.Equal(t, []string{filepath.Join(dir, "a.yml"), filepath.Join(dir, "b.yml")},
			c.LooseForeignKeys.Definitions)
		require.Equal(t, config.URL("file://"+filepath.Join(dir, "diffs")), c.ExternalDiffs.Bucket)
	})
	t.Run("a named file must exist", func(t *testing.T) {
		t.Parallel()
		for source, options := range map[string]config.Options{
			"--config":      {Dir: dir, Path: "no.yaml"},
			"SEXTON_CONFIG": {Dir: dir, Environ: []string{"SEXTON_CONFIG=no.yaml"}},
		} {
			_, err := config.Load(options)
			require.EqualError(t, err, fmt.Sprintf(
				"%s: the configuration file, which %s names, cannot be read: no such file or directory",
				filepath.Join(dir, "no.yaml"), source))
		}
	})
	t.Run("no file and no variable", func(t *testing.T) {
		t.Parallel()
		_, err := config.Load(config.Options{Dir: t.TempDir()})
		require.EqualError(t, err,
			"no database is configured (set DATABASE_URL or --database-url, or write into sexton.yaml: "+
				`databases: {main: {url: "postgres://user:password@host:5432/database"}})`)
	})
}

func TestProblemNamesTheSourceOfAValue(t *testing.T) {
	t.Parallel()

	dir := folder(t, "databases:\n  main:\n    url: "+url+"\n")
	c := pgtest.Must(config.Load(config.Options{Dir: dir, Environ: []string{"SEXTON_JOBS__OWNER=x"}}))(t)
	file := filepath.Join(dir, config.DefaultFile)
	require.Equal(t, file+":3:10: databases.main.url: m (f)", c.Problem("databases.main.url", "m", "f").String())
	require.Equal(t, file+":2:3: databases.main.pace: m", c.Problem("databases.main.pace", "m", "").String())
	require.Equal(t, "SEXTON_JOBS__OWNER: m", c.Problem("jobs.owner", "m", "").String())

	c = pgtest.Must(config.Load(config.Options{Dir: dir, DatabaseURL: url}))(t)
	require.Equal(t, "--database-url: m", c.Problem("databases.main.url", "m", "").String())
}

func TestReadOnlyWithoutCredentials(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]bool{
		"":                                    true,
		"http: {read_only: false}\n":          false,
		"http: {token: t}\n":                  false,
		"http: {user: ann, password: pw}\n":   false,
		"http: {token: t, read_only: true}\n": true,
	} {
		dir := t.TempDir()
		c, err := config.Load(config.Options{
			Dir: dir, DatabaseURL: url,
			Path: write(t, dir, "file.yaml", "databases: {main: {url: "+url+"}}\n"+file),
		})
		require.NoError(t, err)
		require.Equal(t, want, c.HTTP.ReadOnly, file)
	}
}
