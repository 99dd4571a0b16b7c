package undo_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// If a table changed after a deletion, all rows that fit the changed table are restored.
// The report names the other rows with a reason.
func TestRestoreAfterTableChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ddl, reason  string
		books, films [][]string
	}{
		"type dropped, column kept": {
			ddl:   "ALTER TABLE books ALTER mood TYPE text; DROP TYPE mood",
			books: [][]string{{"(1,1,sad)"}, {"(2,1,glad)"}}, films: [][]string{{"(1,1)"}},
		},
		"type and column dropped": {
			ddl:   "ALTER TABLE books DROP mood; DROP TYPE mood",
			books: [][]string{{"(1,1)"}, {"(2,1)"}}, films: [][]string{{"(1,1)"}},
		},
		"type of the reference changed": {
			ddl:   "INSERT INTO films VALUES (9, 9); ALTER TABLE films ALTER author_id TYPE numeric",
			films: [][]string{{"(1,1)"}, {"(9,9)"}},
			books: [][]string{{"(1,1,sad)"}, {"(2,1,glad)"}},
		},
		"primary key dropped": {
			ddl: "ALTER TABLE films DROP CONSTRAINT films_pkey", reason: "its table now has a different primary key",
			books: [][]string{{"(1,1,sad)"}, {"(2,1,glad)"}}, films: [][]string{{"(1,)"}},
		},
		"primary key of more columns": {
			ddl:    "ALTER TABLE films DROP CONSTRAINT films_pkey, ADD kind int DEFAULT 0, ADD PRIMARY KEY (id, kind); INSERT INTO films VALUES (1, NULL, 5)",
			reason: "its table now has a different primary key",
			books:  [][]string{{"(1,1,sad)"}, {"(2,1,glad)"}}, films: [][]string{{"(1,,0)"}, {"(1,,5)"}},
		},
		"changed column dropped": {
			ddl: "ALTER TABLE films DROP author_id", reason: "column author_id does not exist",
			books: [][]string{{"(1,1,sad)"}, {"(2,1,glad)"}}, films: [][]string{{"(1)"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, `
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE authors (id bigint PRIMARY KEY);
CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, mood mood);
CREATE TABLE films (id bigint PRIMARY KEY, author_id bigint);
INSERT INTO authors VALUES (1); INSERT INTO films VALUES (1, 1); INSERT INTO books VALUES (1, 1, 'sad'), (2, 1, 'glad');`, `
books: [{table: authors, column: author_id, on_delete: async_delete}]
films: [{table: authors, column: author_id, on_delete: async_nullify}]
`, "authors")
			b.delete(t, "authors WHERE id = 1")
			b.Exec(c.ddl)
			report := b.restore(t, b.last(t).ID)
			require.Equal(t, [][][]string{c.books, c.films}, b.all("books", "films"))
			if c.reason == "" {
				require.Empty(t, report.Left)
				return
			}
			require.Len(t, report.Left, 1)
			require.Equal(t, c.reason, report.Left[0].Reason)
		})
	}
}

// Rows that a trigger or rule prevents from being inserted, without an error, are not
// marked as restored. They can be restored later.
func TestRowsRefusedByTriggerCanBeRestoredLater(t *testing.T) {
	t.Parallel()
	const no = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.id %s THEN RETURN NULL; END IF; RETURN NEW; END';" +
		"CREATE TRIGGER no BEFORE INSERT ON books FOR EACH ROW EXECUTE FUNCTION no(); ALTER TABLE books ENABLE ALWAYS TRIGGER no;"
	const rule = "CREATE TABLE elsewhere (LIKE books); CREATE RULE no AS ON INSERT TO books WHERE NEW.id = 2 DO INSTEAD INSERT INTO elsewhere VALUES (NEW.*)"
	for name, c := range map[string]struct {
		ddl, undo string
		fire      bool
	}{
		"one row":  {ddl: fmt.Sprintf(no, "= 2"), undo: "DROP TRIGGER no ON books"},
		"all rows": {ddl: fmt.Sprintf(no, "> 0"), undo: "DROP TRIGGER no ON books", fire: true},
		"without a primary key": {
			ddl:  "ALTER TABLE books DROP CONSTRAINT books_pkey;" + fmt.Sprintf(no, "= 2"),
			undo: "DROP TRIGGER no ON books",
		},
		"rule": {ddl: rule, undo: "DROP RULE no ON books", fire: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := library(t)
			b.delete(t, "authors WHERE id = 1")
			b.Exec(c.ddl)
			b.engine.FireTriggers = c.fire
			id := b.last(t).ID
			report := b.restore(t, id)
			require.NotEmpty(t, report.Left)
			require.Equal(t, "a trigger or rule prevented it", report.Left[0].Reason)
			require.Equal(t, "partly_restored", report.Unit.State)
			b.Exec(c.undo)
			require.Empty(t, b.restore(t, id).Left)
			require.Equal(t, [][]string{{"(1,1,1,a)"}, {"(2,1,2,b)"}, {"(3,1,,c)"}, {"(4,2,1,d)"}}, b.all("books")[0])
		})
	}
}

// If saved rows are deleted before the restore locks them, the restore fails and restores
// nothing.
func TestRestoreFailsIfKeptRowsExpire(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.delete(t, "authors WHERE id = 1")
	b.engine.Reached = func(point string) error {
		if point == "begun" {
			b.Exec("DELETE FROM sexton.undo WHERE pg_catalog.cardinality(origins) > 0")
		}
		return nil
	}
	report, err := b.engine.Restore(t.Context(), b.last(t).ID, false)
	require.ErrorContains(t, err, "the kept rows of the deletion have expired or were forgotten")
	require.Zero(t, report.Restored)
	require.Equal(t, [][]string{{"2"}}, b.Rows("SELECT id::text FROM authors"))
	require.Equal(t, [][]string{{"4"}}, b.Rows("SELECT id::text FROM books"))
}

// A restore needs a bounded number of statements to find refused rows, and the reasons
// contain no values of rows.
func TestRefusedRowsNeedFewStatements(t *testing.T) {
	t.Parallel()
	const rows, other = 100, "INSERT INTO books SELECT i + 1000, 2, 's' || i FROM generate_series(1, 99) AS i;"
	for name, c := range map[string]struct {
		ddl, reason string
		left, tries int
		fire        bool
	}{
		"unique index": {
			ddl: "CREATE UNIQUE INDEX ON books (pg_catalog.lower(slug));" + other, left: rows - 1, tries: 2 * rows,
			reason: `duplicate key value violates unique constraint "books_lower_idx"`,
		},
		"deferrable index": {
			ddl: "ALTER TABLE books ADD UNIQUE (slug) DEFERRABLE; INSERT INTO books VALUES (1000, 2, 's7')", left: 1,
			tries: 20, fire: true,
			reason: `duplicate key value violates unique constraint "books_slug_key"`,
		},
		"deferrable index with silenced triggers": {
			ddl: "ALTER TABLE books ADD UNIQUE (slug) DEFERRABLE; INSERT INTO books VALUES (1000, 2, 's7')", left: rows,
			reason: "its unique key books_slug_key is deferrable and checked only by triggers: set loose_foreign_keys.undo.fire_triggers to true",
		},
		"exclusion": {
			ddl: "ALTER TABLE books ADD EXCLUDE USING btree (slug WITH =);" + other, left: rows - 1, tries: 2 * rows,
			reason: `conflicting key value violates exclusion constraint "books_slug_excl"`,
		},
		"column added since": {
			ddl: "DELETE FROM books; ALTER TABLE books ADD pages int NOT NULL", left: rows, tries: 1,
			reason: `null value in column "pages" of relation "books" violates not-null constraint`,
		},
		"constraint": {
			ddl: "ALTER TABLE books ADD CONSTRAINT short CHECK (slug <> 's7') NOT VALID", left: 1, tries: 20,
			reason: `new row for relation "books" violates check constraint "short"`,
		},
		"type": {
			ddl:  "DELETE FROM books; ALTER TABLE books ALTER slug TYPE numeric USING 1",
			left: rows, tries: 2 * rows, reason: "the database refuses one of its values (SQLSTATE 22P02)",
		},
		"privilege": {
			ddl: `CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''permission denied'' USING ERRCODE = ''42501''; END';
CREATE TRIGGER deny BEFORE INSERT ON books FOR EACH ROW EXECUTE FUNCTION deny(); ALTER TABLE books ENABLE ALWAYS TRIGGER deny`, left: rows, tries: 1,
			reason: "permission denied; the worker's role needs GRANT SELECT, INSERT, UPDATE ON TABLE public.books, and GRANT SELECT on the tables that it refers to",
		},
	} {
		if name == "exclusion" && !pgtest.Long {
			continue // An exclusion constraint refuses rows in the same way as a unique index.
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, `
CREATE TABLE authors (id bigint PRIMARY KEY);
CREATE TABLE books (id bigint PRIMARY KEY, author_id bigint, slug text);
CREATE TABLE films (id bigint PRIMARY KEY, author_id bigint);
CREATE SEQUENCE tries;
CREATE FUNCTION try() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_catalog.nextval(''public.tries''); RETURN NULL; END';
CREATE TRIGGER tried BEFORE INSERT ON books EXECUTE FUNCTION try();
INSERT INTO authors VALUES (1), (2); INSERT INTO films VALUES (1, 1);
INSERT INTO books SELECT i, 1, 's' || i FROM generate_series(1, 100) AS i;`, `
books: [{table: authors, column: author_id, on_delete: async_delete}]
films: [{table: authors, column: author_id, on_delete: async_nullify}]
`, "authors")
			b.delete(t, "authors WHERE id = 1")
			b.Exec(c.ddl)
			b.Exec("ALTER TABLE books ENABLE ALWAYS TRIGGER tried; SELECT pg_catalog.setval('tries', 1, false)")
			b.engine.FireTriggers = c.fire
			report := b.restore(t, b.last(t).ID)
			require.EqualValues(t, rows+2-c.left, report.Restored)
			require.EqualValues(t, c.left, report.LeftRows)
			for _, left := range report.Left {
				require.Equal(t, c.reason, left.Reason)
			}
			require.Equal(t, [][]string{{"(1,1)"}}, b.all("films")[0])
			count := "SELECT (SELECT pg_catalog.nextval('tries') - 2)::text, (SELECT pg_catalog.count(*) FROM sexton.undo WHERE changed IS NULL AND via IS NOT NULL)::text"
			counts := b.Rows(count)[0] // tries limits how often the trigger runs per set.
			sets := pgtest.Must(strconv.Atoi(counts[1]))(t)
			require.LessOrEqual(t, pgtest.Must(strconv.Atoi(counts[0]))(t), c.tries*sets)
		})
	}
}

// undo_layout returns a new layout after each change of a table that affects saved rows,
// and the same layout after other changes.
func TestLayoutChangesWithTable(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE SCHEMA apart;
CREATE TYPE apart.mood AS ENUM ('sad', 'glad');
CREATE TABLE authors (id bigint PRIMARY KEY, number bigint UNIQUE);
CREATE TABLE books (id bigint PRIMARY KEY, number bigint NOT NULL, author_id bigint, mood apart.mood);`, `
books: [{table: authors, column: author_id, on_delete: async_delete}]
`, "authors")
	layout := func() int64 { return pgtest.Scalar[int64](t, b, "SELECT sexton.undo_layout('books'::regclass, '{}')") }
	last := layout()
	for _, ddl := range []string{
		"ALTER TABLE books RENAME mood TO temper", "ALTER TYPE apart.mood RENAME TO temper",
		"ALTER SCHEMA apart RENAME TO aside",
		"ALTER TYPE aside.temper SET SCHEMA public", "ALTER TABLE books ALTER number TYPE numeric",
		"ALTER TABLE books ADD title text",
		"ALTER TABLE books ALTER title SET STORAGE PLAIN", "ALTER TABLE books DROP title",
		"ALTER TABLE books DROP CONSTRAINT books_pkey",
		"ALTER TABLE books ADD PRIMARY KEY (number)",
		"ALTER TABLE books DROP CONSTRAINT books_pkey, ADD PRIMARY KEY (number) INCLUDE (id)",
		"ALTER TABLE books ADD FOREIGN KEY (author_id) REFERENCES authors (number) ON DELETE CASCADE",
		"ALTER TABLE authors RENAME number TO place",
		"ALTER TABLE books ADD long text GENERATED ALWAYS AS (number::text) STORED",
		"ALTER TABLE books ALTER long DROP EXPRESSION",
	} {
		b.Exec(ddl)
		next := layout()
		require.NotEqual(t, last, next, ddl)
		last = next
		b.Exec("GRANT SELECT ON books TO PUBLIC; ALTER TABLE books ALTER author_id SET STATISTICS 7, ALTER author_id SET DEFAULT 3; ANALYZE books")
		require.Equal(t, last, layout(), ddl)
	}
}
