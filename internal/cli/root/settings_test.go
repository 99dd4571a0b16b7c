package root_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// otherSettings has a non-default value for each setting that changes the text of values.
var otherSettings = map[string]string{
	"standard_conforming_strings": "off", "DateStyle": "German, DMY", "IntervalStyle": "sql_standard",
	"TimeZone":     "Asia/Kolkata",
	"bytea_output": "escape", "extra_float_digits": "-3", "array_nulls": "off", "client_encoding": "LATIN1",
}

// workerSettings has values that differ from otherSettings. A worker with these settings
// would misread texts that a session with otherSettings has written.
var workerSettings = map[string]string{
	"standard_conforming_strings": "off", "DateStyle": "SQL, MDY", "IntervalStyle": "postgres",
	"TimeZone":     "America/New_York",
	"bytea_output": "hex", "extra_float_digits": "-2", "array_nulls": "off", "client_encoding": "LATIN1",
}

// setDefaults sets the settings as defaults of the database, and closes the pool's
// sessions.
func setDefaults(s *clitest.Site, settings map[string]string) {
	for name, value := range settings {
		s.Exec("ALTER DATABASE " + pgx.Identifier{s.Name}.Sanitize() + " SET " + name + " = '" + value + "'")
	}
	s.Pool().Reset()
}

// settingsTrigger creates a trigger function that records the settings of the session in
// the table seen, except the encoding.
const settingsTrigger = `
CREATE TABLE seen (relation name, settings text);
CREATE FUNCTION record_settings() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	INSERT INTO public.seen SELECT TG_TABLE_NAME, pg_catalog.string_agg(pg_catalog.concat(name, '=', setting), ' ' ORDER BY name COLLATE "C") FROM pg_catalog.pg_settings
	WHERE name IN ('standard_conforming_strings', 'DateStyle', 'IntervalStyle', 'TimeZone', 'bytea_output', 'extra_float_digits', 'array_nulls');
	RETURN NULL; END $$;`

// requireSettings requires that the triggers of exactly these tables fired, and that the
// sessions had the given settings.
func requireSettings(t *testing.T, s *clitest.Site, settings map[string]string, tables ...string) {
	t.Helper()
	var want []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if name != "client_encoding" {
			want = append(want, name+"="+settings[name])
		}
	}
	require.Equal(t, [][]string{{strings.Join(want, " ")}}, s.Rows("SELECT DISTINCT settings COLLATE \"C\" FROM seen"))
	require.Equal(t, fmt.Sprint(tables), fmt.Sprint(pgtest.Scalar[[]string](t, s.Database,
		"SELECT array_agg(DISTINCT relation::text ORDER BY relation::text) FROM seen")))
}

// keyTypes maps types whose text depends on settings to two keys each.
var keyTypes = map[string][2]string{
	"date":            {"2026-02-01", "2026-01-02"},
	"timestamptz":     {"2026-02-01 03:04:05.678+00", "2026-01-02 03:04:05+00"},
	"interval":        {"-1 day -02:00:00", "-1 day +02:00:00"},
	"float8":          {"0.30000000000000004", "0.3"},
	"bytea":           {`\x5c00ff`, `\x5c`},
	"text":            {`a\b`, `日本'\'`},
	"\"odd \\ type\"": {`c\d`, "NULL"},
}

// Runs, plan, audit and undo read deleted keys correctly if the sessions of the
// application, the worker and undo have different settings.
func TestValuesWithOtherSettings(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{
		"prepared statements":   "",
		"exec mode for poolers": "&default_query_exec_mode=cache_describe",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testValues(t, mode)
		})
	}
}

func testValues(t *testing.T, mode string) {
	s := clitest.NewSite(t, pgtest.New(t))
	s.Configure(s.URL+mode, "loose_foreign_keys: {undo: {keep: 24h}}\n")
	var yml, all []string
	s.Exec(settingsTrigger + `CREATE DOMAIN "odd \ type" AS text`)
	for name, keys := range keyTypes {
		table := strings.NewReplacer(`"`, "", " ", "_", `\`, "").Replace(name)
		quoted := func(value string) string {
			return "E'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(value) + "'"
		}
		s.Exec(fmt.Sprintf(`CREATE TABLE p_%[1]s (id %[2]s PRIMARY KEY);
			CREATE TABLE c_%[1]s ("of \ it" %[2]s, tags text[] DEFAULT ARRAY['a', NULL, 'NULL', E'\\'], body text DEFAULT E'a\\''b', state %[2]s);
			CREATE INDEX ON c_%[1]s ("of \ it");
			CREATE TABLE u_%[1]s (nr bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, of_it %[2]s, only_one %[2]s, state %[2]s);
			CREATE INDEX ON u_%[1]s (of_it);
			INSERT INTO p_%[1]s VALUES (%[3]s), (%[4]s);
			INSERT INTO c_%[1]s ("of \ it") VALUES (%[3]s), (%[4]s);
			INSERT INTO u_%[1]s (of_it, only_one) VALUES (%[3]s, %[4]s), (%[3]s, %[3]s), (%[4]s, %[3]s);
			CREATE TRIGGER record_settings AFTER DELETE ON c_%[1]s FOR EACH ROW EXECUTE FUNCTION record_settings();
			CREATE TRIGGER record_settings AFTER UPDATE ON u_%[1]s FOR EACH ROW EXECUTE FUNCTION record_settings()`, table, name, quoted(keys[0]), quoted(keys[1])))
		yml = append(yml, fmt.Sprintf("c_%[1]s: [{table: p_%[1]s, column: 'of \\ it', on_delete: async_delete}]\n"+
			"u_%[1]s: [{table: p_%[1]s, column: of_it, on_delete: update_column_to, target_column: state, target_value: %[2]q, conditions: [{column: only_one, value: %[2]q}]}]\n",
			table, keys[1]))
		all = append(all, "c_"+table, "u_"+table)
	}
	s.Write("loose_foreign_keys.yml", strings.Join(yml, ""))
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	rows := func(want string) {
		t.Helper()
		for name, keys := range keyTypes {
			table := strings.NewReplacer(`"`, "", " ", "_", `\`, "").Replace(name)
			counts := pgtest.Scalar[string](t, s.Database, fmt.Sprintf(`SELECT concat_ws(' ', (SELECT count(*) FROM p_%[1]s), (SELECT count(*) FROM c_%[1]s),
				(SELECT count(*) FROM c_%[1]s WHERE tags::text = '{a,NULL,"NULL","\\"}' AND body = E'a\\''b'), (SELECT count(*) FROM u_%[1]s),
				(SELECT count(*) FROM u_%[1]s WHERE state = $1::text::%[2]s AND only_one = $1::text::%[2]s))`, table, name), keys[1])
			require.Equal(t, want, counts, name)
		}
	}
	rows("2 2 2 3 0")
	setDefaults(s, otherSettings)
	for name, keys := range keyTypes {
		table := strings.NewReplacer(`"`, "", " ", "_", `\`, "").Replace(name)
		conn := pgtest.Connect(t, s.URL+"&client_encoding=UTF8")
		pgtest.Exec(t, conn, fmt.Sprintf("DELETE FROM p_%s WHERE id = $1::text::%s", table, name), keys[0])
	}
	setDefaults(s, workerSettings)
	require.NotContains(t, s.OK("plan"), "could not be")
	s.OK("job", "run", clitest.Kind)
	s.Exec("ALTER DATABASE " + pgx.Identifier{s.Name}.Sanitize() + " RESET ALL")
	s.Pool().Reset()
	rows("1 1 1 3 1")
	requireSettings(t, s, workerSettings, slices.Sorted(slices.Values(all))...)
	setDefaults(s, otherSettings)
	s.OK("audit")
	for _, id := range s.Rows("SELECT DISTINCT id::text FROM sexton.undo WHERE origins IS NULL") {
		s.OK("undo", id[0])
	}
	s.Exec("ALTER DATABASE " + pgx.Identifier{s.Name}.Sanitize() + " RESET ALL")
	s.Pool().Reset()
	rows("2 2 2 3 0")
}

// All commands and all jobs work if each text setting of the database has a non-default
// value.
func TestEveryCommandWithOtherSettings(t *testing.T) {
	t.Parallel()
	s := clitest.NewRoleSite(t)
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+
		"p_ci_builds: [{table: projects, column: project_id, on_delete: async_delete}]\n")
	s.OK("triggers", "install")
	s.Exec("INSERT INTO organizations (id, name, path) VALUES (1, 'one', 'one') ON CONFLICT DO NOTHING")
	s.Exec(settingsTrigger)
	watched := []string{"groups", "issues", "merge_request_diff_files", "users"}
	for _, table := range watched {
		s.Exec("CREATE TRIGGER record_settings AFTER DELETE OR UPDATE ON " + table + " FOR EACH ROW EXECUTE FUNCTION record_settings()")
	}
	setDefaults(s.Site, otherSettings)
	s.Environ = append(s.Environ, "SEXTON_HTTP__LISTEN=127.0.0.1:0")
	s.Exec("DELETE FROM seen")
	runWorker(t, s, s.URL)
	s.Exec(fmt.Sprintf(pendingWork, 2))
	s.Exec(`INSERT INTO sexton.leases VALUES ('held', 1, 'gone', now(), now() + interval '1 hour');
		INSERT INTO loose_foreign_keys_deleted_records (id, primary_key_value, fully_qualified_table_name, status, consume_after)
		OVERRIDING SYSTEM VALUE VALUES (4711, 3, 'public.projects', 3, 'infinity')`)
	for _, command := range everyCommand(pgtest.Scalar[string](t, s.Database,
		"SELECT min(id)::text FROM sexton.undo")) {
		if command[0] == "job" && command[1] == "enqueue" && !pgtest.Long {
			// The remaining commands run only in long tests: they read and write few
			// values.
			break
		}
		if command[0] == "init" {
			// The command init writes this file and refuses to overwrite it.
			require.NoError(t, os.Remove(s.Path("loose_foreign_keys.yml")))
		}
		r := s.Run(command...)
		if r.Code != 0 && command[0] != "doctor" {
			t.Errorf("%v: exit %d\n%s\n%s", command, r.Code, r.Stdout, r.Stderr)
		}
	}
	requireSettings(t, s.Site, otherSettings, watched...)
}
