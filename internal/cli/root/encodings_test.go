package root_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

const umlautTables = `
CREATE TABLE "größe" (id text PRIMARY KEY, "maß" integer);
CREATE TABLE teile (nr bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, "größe_id" text, "größe" text, zustand text DEFAULT 'neu');
CREATE INDEX ON teile ("größe_id");
CREATE TABLE reste ("größe_id" text, art text);
CREATE INDEX ON reste ("größe_id");
INSERT INTO "größe" VALUES ('weiß', 1), ('grün', 2);
INSERT INTO teile ("größe_id", "größe") VALUES ('weiß', 'ä'), ('grün', 'ö');
INSERT INTO reste VALUES ('weiß', 'Größe'), ('weiß', 'Anderes'), ('grün', 'Größe');`

const umlautDefinitions = `teile:
  - {table: größe, column: größe_id, on_delete: update_column_to, target_column: zustand, target_value: gelöscht}
reste:
  - {table: größe, column: größe_id, on_delete: async_delete, conditions: [{column: art, value: Größe}]}
`

// umlautSite returns a site in a database with the given encoding and settings. Its names
// and values have letters beyond ASCII. It also returns a UTF-8 connection of the
// application.
func umlautSite(t *testing.T, encoding string, settings ...string) (*clitest.Site, *pgx.Conn) {
	s := clitest.NewSite(t, pgtest.NewEncoded(t, encoding))
	s.Configure(s.URL, "loose_foreign_keys: {undo: {keep: 24h}}\n")
	s.Write("loose_foreign_keys.yml", umlautDefinitions)
	for _, setting := range settings {
		s.Exec("ALTER DATABASE " + pgx.Identifier{s.Name}.Sanitize() + " SET " + setting)
	}
	app := pgtest.Connect(t, s.URL+"&client_encoding=UTF8")
	pgtest.Exec(t, app, umlautTables)
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	return s, app
}

// Names and values in definitions match in every encoding of the database and of the
// sessions.
func TestEncodings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		encoding string
		settings []string
	}{
		"LATIN1":                   {encoding: "LATIN1"},
		"WIN1252":                  {encoding: "WIN1252"},
		"UTF8 with LATIN1 clients": {encoding: "UTF8", settings: []string{"client_encoding = 'LATIN1'"}},
		"SQL_ASCII":                {encoding: "SQL_ASCII"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, app := umlautSite(t, c.encoding, c.settings...)
			before := rowsOf(t, app)
			pgtest.Exec(t, app, `DELETE FROM "größe" WHERE id = 'weiß'`)
			require.Contains(t, s.OK("plan"), "größe")
			require.Contains(t, s.OK("triggers", "status"), "match the definitions")
			s.OK("job", "run", clitest.Kind)
			require.Equal(t, []string{"grün: Größe", "grün: neu", "grün: row", "weiß: Anderes", "weiß: gelöscht"},
				rowsOf(t, app))
			s.OK("audit")
			s.OK("undo", pgtest.Scalar[string](t, app, "SELECT min(id)::text FROM sexton.undo"))
			require.Equal(t, before, rowsOf(t, app))
		})
	}
}

func rowsOf(t *testing.T, app *pgx.Conn) []string {
	return pgtest.Scalar[[]string](t, app, `SELECT array_agg(line ORDER BY line) FROM (SELECT id || ': row' FROM "größe"
		UNION ALL SELECT "größe_id" || ': ' || zustand FROM teile UNION ALL SELECT "größe_id" || ': ' || art FROM reste) AS all_of (line)`)
}

// A key that the client_encoding of the database cannot represent, or that is not valid
// UTF-8, is cleaned up. Other keys are not affected.
func TestKeysBeyondTheDefaultEncoding(t *testing.T) {
	t.Parallel()
	for encoding, key := range map[string]string{
		"UTF8":      "'日本'",
		"SQL_ASCII": "convert_from(decode('e9', 'hex'), 'SQL_ASCII')",
	} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			s, app := umlautSite(t, encoding, "client_encoding = 'LATIN1'")
			pgtest.Exec(t, app, `INSERT INTO "größe" VALUES (`+key+`, 3); INSERT INTO reste VALUES (`+key+
				`, 'Größe'); DELETE FROM "größe" WHERE id <> 'weiß'`)
			s.OK("plan")
			s.OK("job", "run", clitest.Kind)
			require.Equal(t, []string{"grün: gelöscht", "weiß: Anderes", "weiß: Größe", "weiß: neu", "weiß: row"},
				rowsOf(t, app))
			require.Equal(t, "0", pgtest.Scalar[string](t, app,
				"SELECT count(*)::text FROM loose_foreign_keys_deleted_records WHERE status = 1"))
		})
	}
}
