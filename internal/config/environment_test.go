package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/config"
	"sexton/internal/pgtest"
)

func names(c *config.Config) []string {
	var out []string
	for _, d := range c.Databases {
		out = append(out, d.Name)
	}
	return out
}

func TestEnvironmentMakesDatabases(t *testing.T) {
	t.Parallel()

	c := pgtest.Must(config.Load(config.Options{Dir: t.TempDir(), Environ: []string{
		"SEXTON_DATABASES__CI__URL=" + url, "SEXTON_DATABASES__CI__TABLES=ci_*,p_ci_*",
		"SEXTON_DATABASES__CI__LIMITS__RUNTIME=10s",
		"SEXTON_DATABASES__A__B__URL=" + url, "SEXTON_DATABASES__MAIN__URL=" + url, "DATABASE_URL=unused",
	}}))(t)
	require.Equal(t, []string{"main", "a__b", "ci"}, names(c))
	require.Equal(t, []string{"ci_*", "p_ci_*"}, c.Databases[2].Tables)
	require.Equal(t, 10*time.Second, c.Databases[2].Limits.Runtime)
	require.Equal(t, "main", c.Jobs.Database)

	t.Run("a database without a URL is not added", func(t *testing.T) {
		t.Parallel()
		_, err := config.Load(config.Options{Dir: t.TempDir(), Environ: []string{"SEXTON_DATABASES__MAIN__PACE=turbo"}})
		require.EqualError(t, err,
			"SEXTON_DATABASES__MAIN__PACE: the variable names a database that is not configured "+
				"(set its URL as well, as in SEXTON_DATABASES__MAIN__URL)")
	})
	t.Run("a variable does not add a database to those of a file", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "databases: {main: {url: \""+url+"\"}}\n", "SEXTON_DATABASES__MIAN__URL="+url)
		require.EqualError(t, err,
			"SEXTON_DATABASES__MIAN__URL: the variable names a database that is not configured (the databases are main)")
	})
	t.Run("variables change the database of DATABASE_URL", func(t *testing.T) {
		t.Parallel()
		c := pgtest.Must(config.Load(config.Options{
			Dir:     t.TempDir(),
			Environ: []string{"DATABASE_URL=" + url, "SEXTON_DATABASES__MAIN__PACE=turbo"},
		}))(t)
		require.Equal(t, config.Turbo, c.Databases[0].Pace)
	})
}

func TestFlagReplacesTheFirstDatabase(t *testing.T) {
	t.Parallel()

	dir := folder(t,
		"databases:\n  b: {url: \"${UNSET}\", listen_url: \"postgres://direct/b\", pace: turbo}\n  a: {url: \""+url+
			"\"}\n")
	c := pgtest.Must(config.Load(config.Options{Dir: dir, DatabaseURL: "postgres://flag/b", Environ: []string{
		"DATABASE_URL=postgres://ignored/b", "SEXTON_DATABASES__B__URL=postgres://variable/b",
	}}))(t)
	require.Equal(t, []string{"b", "a"}, names(c))
	require.Equal(t, config.Database{
		Name: "b", URL: "postgres://flag/b", Schema: "public", SearchPath: "auto",
		Pace: config.Turbo,
	}, c.Databases[0])

	_, err := config.Load(config.Options{Dir: dir, DatabaseURL: "postgres://u:geheim@h:port/b"})
	require.EqualError(t, err,
		"--database-url: is not a Postgres connection string (write postgres://user:password@host:5432/database, "+
			"with % codes for special characters in the password)")
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()

	const noKey = "the variable is not a configuration key (write it in capitals, with two underscores between levels, as in SEXTON_LOG__LEVEL)"
	for variable, want := range map[string]string{
		"SEXTON_LOG__LEVLE":                      "unknown key (did you mean level?)",
		"SEXTON_EXTERNAL_DIFFS__SWEEP__GRACE":    "was removed (remove it and run `sexton diffs verify --remove`)",
		"SEXTON_LOG_LEVEL":                       noKey,
		"SEXTON_log__level":                      noKey,
		"SEXTON_LOG":                             noKey,
		"SEXTON_LOOSE_FOREIGN_KEYS__REPLICA_LAG": "was removed (use jobs.replica_lag)",
		"SEXTON_DATABASES__MAIN__PACEE":          "unknown key (did you mean pace?)",
		"SEXTON_DATABASES__MAIN__LIMITS":         "must be a mapping of keys, not a string",
		"SEXTON_DATABASES__CI__PACE":             "the variable names a database that is not configured (the databases are main)",
		"SEXTON_JOBS__SCHEMA":                    "was removed (remove it; the schema is always sexton)",
		"SEXTON_CONFIG__X__AND__MUCH__MORE__YET": "unknown key (known keys: databases, jobs, loose_foreign_keys, ghost_users, placeholder_users, adjourned_groups, external_diffs, retention, http, log)",
	} {
		_, err := load(t, "databases: {main: {url: \""+url+"\"}}\n", variable+"=1")
		require.EqualError(t, err, variable+": "+want)
	}
	_, err := load(t, "databases: {main: {url: \""+url+"\"}}\n", "SEXTON_CONFIG=", "SEXTON_PG_BIN=x", "SEXTON_FOO=x",
		"sexton_log=x", "broken")
	require.NoError(t, err, "variables that are not part of the configuration are ignored")
}

func TestListsOfMappingsInVariables(t *testing.T) {
	t.Parallel()

	c := pgtest.Must(load(t, "databases: {main: {url: \""+url+"\"}}\n",
		"SEXTON_GHOST_USERS__MOVE=[{table: notes, columns: [author_id], always: true}]",
		"SEXTON_GHOST_USERS__DELETE=[]"))(t)
	require.Equal(t, []config.MoveColumns{{Table: "notes", Columns: []string{"author_id"}, Always: true}},
		c.GhostUsers.Move)
	require.Empty(t, c.GhostUsers.Delete)

	_, err := load(t, "databases: {main: {url: \""+url+"\"}}\n",
		"SEXTON_GHOST_USERS__MOVE=[{tabel: notes, columns: []}]")
	require.EqualError(t, err, "SEXTON_GHOST_USERS__MOVE[0].tabel: unknown key (did you mean table?)\n"+
		"SEXTON_GHOST_USERS__MOVE[0].table: is missing\n"+
		"SEXTON_GHOST_USERS__MOVE[0].columns: is empty")
}

// A value has the same effect in the file and in a variable.
func TestVariableEqualsFile(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	base := "databases:\n  main:\n    url: " + url + "\n"
	duration := rapid.Map(rapid.IntRange(1, 50), func(n int) string { return fmt.Sprintf("%ds", n) })
	number := rapid.Map(rapid.IntRange(1, 9999), func(n int) string { return fmt.Sprint(n) })
	boolean := rapid.SampledFrom([]string{"true", "false"})
	values := map[string]*rapid.Generator[string]{
		"databases.main.pace":           rapid.SampledFrom([]string{"normal", "turbo"}),
		"databases.main.schema":         rapid.StringMatching(`[a-zA-Zé' ]{1,10}`),
		"databases.main.listen_url":     rapid.StringMatching(`postgres://[a-z]{1,5}:[a-z0-9]{1,5}@host/db`),
		"databases.main.limits.deletes": number,
		"databases.main.limits.runtime": duration,
		"jobs.max_workers":              number,
		"jobs.silence": rapid.Map(rapid.IntRange(2, 50),
			func(n int) string { return fmt.Sprintf("%ds", n) }),
		"loose_foreign_keys.enabled":  boolean,
		"loose_foreign_keys.schedule": rapid.SampledFrom([]string{"* * * * *", "*/5 1 * * mon", "@hourly"}),
		"loose_foreign_keys.truncate": rapid.SampledFrom([]string{"reject", "ignore"}),
		"ghost_users.retry_after":     duration,
		"adjourned_groups.batch_size": number,
		"external_diffs.when":         rapid.SampledFrom([]string{"always", "outdated"}),
		"http.token":                  rapid.StringMatching(`[ -#%-~]{1,12}`),
		"log.level":                   rapid.SampledFrom([]string{"debug", "warn"}),
	}
	rapid.Check(t, func(t *rapid.T) {
		file := map[string]string{}
		var environ []string
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(sortedKeys(values)), 1, len(values),
			rapid.ID[string]).Draw(t, "keys") {
			file[key] = values[key].Draw(t, key)
			environ = append(environ, "SEXTON_"+strings.ToUpper(strings.ReplaceAll(key, ".", "__"))+"="+file[key])
		}
		fromFile := pgtest.Must(config.Load(config.Options{
			Dir:  dir,
			Path: write(t, dir, "file.yaml", document(file)),
		}))(t)
		fromEnv := pgtest.Must(config.Load(config.Options{
			Dir: dir, Path: write(t, dir, "base.yaml", base),
			Environ: environ,
		}))(t)
		require.Equal(t, reveal(fromFile), reveal(fromEnv))
	})
}

func TestSchedule(t *testing.T) {
	t.Parallel()

	now := time.Date(2024, 2, 28, 23, 59, 30, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"* * * * *":         time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
		"0 0 29 2 *":        time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
		"*/15 8 * * mon":    time.Date(2024, 3, 4, 8, 0, 0, 0, time.UTC),
		"@every 90s":        now.Add(90 * time.Second),
		"TZ=UTC 30 1 * * *": time.Date(2024, 2, 29, 1, 30, 0, 0, time.UTC),
	} {
		schedule, err := config.Schedule(text).Parse()
		require.NoError(t, err, text)
		require.Equal(t, want, schedule.Next(now), text)
	}
	for text, want := range map[string]string{
		"":                          "has 0 fields; a cron expression has five: minute, hour, day of month, month, day of week",
		"* * * *":                   "has 4 fields; a cron expression has five: minute, hour, day of month, month, day of week",
		"0 * * * * *":               "has 6 fields; a cron expression has five: minute, hour, day of month, month, day of week",
		"60 * * * *":                "field 1 (minute) is not valid",
		"* 24 * * *":                "field 2 (hour) is not valid",
		"* * 0 * *":                 "field 3 (day of month) is not valid",
		"* * * foo *":               "field 4 (month) is not valid",
		"* * * * 5-1":               "field 5 (day of week) is not valid",
		"0 0 31 2 *":                "never fires: no such date exists",
		"0 0 31 4,6,9,11 *":         "never fires: no such date exists",
		"@weekdays":                 "must be one of @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration",
		"@every soon":               "must be one of @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration",
		"TZ=UTC":                    "has 0 fields; a cron expression has five: minute, hour, day of month, month, day of week",
		"TZ=Nowhere/Else * * * * *": "names an unknown time zone",
	} {
		_, err := config.Schedule(text).Parse()
		require.EqualError(t, err, want, text)
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir := folder(t,
		"databases: {main: {url: \""+url+"\"}}\nhttp: {listen: \":1\", user: ann, password_file: word, token_file: \""+
			filepath.Join(t.TempDir(), "token")+"\"}\n")
	load := func(environ ...string) (*config.Config, error) {
		return config.Load(config.Options{Path: filepath.Join(dir, "sexton.yaml"), Environ: environ})
	}
	_, err := load()
	require.ErrorContains(t, err, "http.password_file: names a file that cannot be read: no such file or directory")
	require.ErrorContains(t, err, "http.token_file: names a file that cannot be read")
	require.NotContains(t, err.Error(), "http.user", "the missing password and token are not reported in addition")

	write(t, dir, "word", "geheim 1 \n")
	token := write(t, t.TempDir(), "token", "geheim-2")
	c := pgtest.Must(load("SEXTON_HTTP__TOKEN_FILE=" + token))(t)
	require.Equal(t, "geheim 1 ", string(c.HTTP.Password), "only the line end is removed")
	require.Equal(t, "geheim-2", string(c.HTTP.Token))
	shown := string(c.Show().YAML())
	require.NotContains(t, shown, "geheim")
	require.NotContains(t, shown, "***", "the path of the file is shown instead of the password")
	require.Contains(t, shown, `password_file: `+filepath.Join(dir, "word"))

	for content, want := range map[string]string{
		"":                         "is empty",
		"\n":                       "is empty",
		"geheim\nzwei\n":           "several lines",
		strings.Repeat("x", 5<<10): "larger than 4096 bytes",
	} {
		write(t, dir, "word", content)
		_, err := load("SEXTON_HTTP__TOKEN_FILE=" + token)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "geheim")
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "word")))
	_, err = load("SEXTON_HTTP__TOKEN_FILE="+token, "SEXTON_HTTP__TOKEN=geheim", "SEXTON_HTTP__PASSWORD_FILE=",
		"SEXTON_HTTP__USER=")
	require.ErrorContains(t, err, "SEXTON_HTTP__TOKEN_FILE: is set in addition to http.token (keep one of them)")
}
