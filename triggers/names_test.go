package triggers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

func hostileNames() []string {
	return []string{
		"MixedCase", "with space", "select", "order", `quo"te`, "apo'strophe", `"; DROP TABLE x; --`, "'); DROP TABLE x; --",
		"dots.in.it", `back\slash`, `\000`, "%I %s %1$I %", "$sexton$", "$$", "$sexton_$ $sexton$", "új tábla", "表", "new\nline", "-- comment", "/* open",
		"tg_argv", "gone", "sexton_deleted", "key_column", strings.Repeat("x", 63), strings.Repeat("ü", 31), strings.Repeat(`"`, 63),
		`"public"`, `"track_function"`, "recorded_name",
	}
}

func TestAnyIdentifierWorksAndNoneExecutes(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE x (id int)")
	names := hostileNames()
	var all []triggers.Parent
	for i, name := range names {
		// Neighbours in the list meet in one table.
		parent := triggers.Parent{Schema: names[(i+1)%len(names)], Table: name, KeyColumns: []string{names[(i+2)%len(names)]}}
		all = append(all, parent)
		b.Exec("CREATE SCHEMA " + pgx.Identifier{parent.Schema}.Sanitize())
		table, key := pgx.Identifier{parent.Schema, parent.Table}.Sanitize(), pgx.Identifier{parent.KeyColumns[0]}.Sanitize()
		b.Exec("CREATE TABLE " + table + " (" + key + " bigint)")
		b.Exec("INSERT INTO "+table+" VALUES ($1), ($2)", i, -i-1)
	}
	b.cfg.Truncate = triggers.Capture
	b.install(all...)
	require.Empty(t, b.status(all...), "nothing is taken for altered")
	require.Empty(t, b.install(all...).Triggers)

	for i, parent := range all {
		table := pgx.Identifier{parent.Schema, parent.Table}.Sanitize()
		b.Exec("DELETE FROM "+table+" WHERE "+pgx.Identifier{parent.KeyColumns[0]}.Sanitize()+" = $1", i)
		b.Exec("TRUNCATE " + table)
		want := pgtest.Scalar[string](t, b.Database, "SELECT format('%I.%I', $1::text, $2::text)", parent.Schema, parent.Table)
		got := b.Rows("SELECT fully_qualified_table_name, primary_key_value FROM loose_foreign_keys_deleted_records ORDER BY id DESC LIMIT 2")
		require.Equal(t, want, got[0][0], "%+v", parent)
		require.Equal(t, want, got[1][0], "%+v", parent)
	}
	require.Len(t, b.tombstones(), len(all)*2)
	require.Zero(t, pgtest.Scalar[int](t, b.Database, "SELECT count(*)::int FROM x"), "table x is still there")

	pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
}

func TestAnySchemaOfTheTombstonesWorks(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE p (id int); CREATE TABLE q (id text)")
	b.cfg.Truncate = triggers.Capture
	for i, name := range hostileNames() {
		schema := pgx.Identifier{name}.Sanitize()
		b.Exec("CREATE SCHEMA " + schema + "; GRANT USAGE ON SCHEMA " + schema + " TO PUBLIC")
		b.Exec("ALTER TABLE " + pgx.Identifier{b.cfg.TrackedSchema}.Sanitize() + ".loose_foreign_keys_deleted_records SET SCHEMA " + schema)
		b.cfg.TrackedSchema = name
		require.Len(t, b.install(id("p"), id("q")).Functions, 3, "every function follows into schema %q", name)
		require.Empty(t, b.status(id("p"), id("q")), name)
		b.Exec("INSERT INTO p VALUES (1), (2); INSERT INTO q VALUES ('a'); DELETE FROM p WHERE id = 1; DELETE FROM q; TRUNCATE p")
		require.Equal(t, 3*(i+1), pgtest.Scalar[int](t, b.Database, "SELECT count(*)::int FROM "+schema+".loose_foreign_keys_deleted_records"), name)
	}
}

// The installer's own session settings must not change what is installed.
func TestHostileSettingsOfTheInstaller(t *testing.T) {
	t.Parallel()
	b := setup(t, `CREATE TABLE "a\b'c" (id int); INSERT INTO "a\b'c" VALUES (1)`)
	pgtest.Exec(t, b.conn, "SET standard_conforming_strings = off; SET quote_all_identifiers = on; SET search_path = ''; "+
		"SET default_transaction_isolation = serializable")
	b.install(id(`a\b'c`))
	b.Exec(`DELETE FROM "a\b'c"`)
	require.Equal(t, []string{`public."a\b'c" 1`}, b.tombstones())
	require.Empty(t, b.status(id(`a\b'c`)))
}

// Whether the installer's statement timeout is lifted shows where it has to wait, however fast the machine.
func TestInstallOutlastsTheStatementTimeoutOfTheSession(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	b := setup(t, "CREATE TABLE parents (id int)")
	pgtest.Exec(t, b.conn, fmt.Sprintf("SET statement_timeout = %d", timeout.Milliseconds()))
	blocker := pgtest.Begin(t, b.Pool(), "LOCK TABLE parents IN ROW EXCLUSIVE MODE")
	ended := make(chan error, 1)
	go func() {
		_, err := triggers.Install(t.Context(), b.conn, triggers.Config{JobsSchema: "sexton", TrackedSchema: "public"}, []triggers.Parent{id("parents")})
		ended <- err
	}()
	pgtest.Outlast(t, b.Database, blocker.Conn().PgConn().PID(), 2*timeout)
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, <-ended)
}
