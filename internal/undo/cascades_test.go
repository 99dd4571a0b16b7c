package undo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// cascading is a schema with a loose foreign key from files to folders, and native
// foreign keys below both tables: a chain, a diamond, self-references, and keys that set
// columns to NULL or a default.
const cascading = `
CREATE TABLE folders (id bigint PRIMARY KEY, above bigint REFERENCES folders ON DELETE CASCADE, body text);
CREATE TABLE files (id bigint PRIMARY KEY, folder_id bigint, above bigint REFERENCES files ON DELETE CASCADE);
CREATE TABLE marks (folder_id bigint REFERENCES folders ON DELETE CASCADE, body text);
CREATE TABLE parts (id bigint PRIMARY KEY, file_id bigint REFERENCES files ON DELETE CASCADE, body text);
CREATE TABLE lines (id bigint PRIMARY KEY, part_id bigint REFERENCES parts ON DELETE CASCADE, file_id bigint REFERENCES files ON DELETE CASCADE,
	next bigint REFERENCES lines ON DELETE CASCADE);
CREATE TABLE links (id bigint PRIMARY KEY, a bigint REFERENCES files ON DELETE SET NULL, b bigint REFERENCES files ON DELETE SET NULL, body text);
CREATE TABLE hints (id bigint PRIMARY KEY, line_id bigint REFERENCES lines ON DELETE SET NULL, body text);
CREATE TABLE states (id bigint PRIMARY KEY, file_id bigint DEFAULT 2 REFERENCES files ON DELETE SET DEFAULT);
CREATE TABLE traces (id bigint PRIMARY KEY, file_id bigint REFERENCES files ON DELETE SET DEFAULT);
ALTER TABLE files ADD UNIQUE (id, folder_id);
CREATE TABLE pairs (id bigint PRIMARY KEY, file_id bigint DEFAULT 2, folder_id bigint,
	FOREIGN KEY (file_id, folder_id) REFERENCES files (id, folder_id) ON DELETE SET DEFAULT);
CREATE TABLE "odd ""name" ("my ""key" bigint PRIMARY KEY, at timestamptz, "line ""id" bigint REFERENCES lines ON DELETE CASCADE);
CREATE INDEX ON folders (above); CREATE INDEX ON files (folder_id); CREATE INDEX ON files (above); CREATE INDEX ON marks (folder_id);
CREATE INDEX ON parts (file_id); CREATE INDEX ON lines (part_id); CREATE INDEX ON lines (file_id);
CREATE INDEX ON lines (next); CREATE INDEX ON links (a); CREATE INDEX ON links (b); CREATE INDEX ON hints (line_id);
INSERT INTO folders SELECT i, CASE WHEN i > 4 THEN i - 4 END, 'folder ' || i FROM generate_series(1, 8) AS i;
INSERT INTO files SELECT i, i % 8 + 1, CASE WHEN i > 24 THEN i - 8 END FROM generate_series(1, 40) AS i;
INSERT INTO marks SELECT i % 8 + 1, 'mark ' || i FROM generate_series(1, 20) AS i;
INSERT INTO parts SELECT i, i % 40 + 1, 'part ' || i FROM generate_series(1, 80) AS i;
INSERT INTO lines SELECT i, i % 80 + 1, CASE WHEN i % 3 = 0 THEN (i % 80 + 1) % 40 + 1 END, CASE WHEN i > 80 THEN i - 80 END FROM generate_series(1, 160) AS i;
INSERT INTO links SELECT i, i % 40 + 1, (i + 8) % 40 + 1, 'link ' || i FROM generate_series(1, 60) AS i;
INSERT INTO states SELECT i, i FROM generate_series(1, 40) AS i; INSERT INTO traces SELECT i, i FROM generate_series(1, 40) AS i;
INSERT INTO pairs SELECT i, i, i % 8 + 1 FROM generate_series(1, 40) AS i;
INSERT INTO hints SELECT i, i * 3 % 160 + 1, 'hint ' || i FROM generate_series(1, 60) AS i;
INSERT INTO "odd ""name" SELECT i, '2026-01-01', i FROM generate_series(1, 150) AS i;`

var cascadingTables = []string{
	"folders", "files", "marks", "parts", "lines", "links", "hints", "states", "traces",
	"pairs", `"odd ""name"`,
}

// installCascadeTriggers installs the same triggers as `sexton triggers install` for the
// parent folders with the child files. It returns the native foreign keys below them.
func (b *bundle) installCascadeTriggers(t *testing.T, exclude ...string) []triggers.Cascade {
	t.Helper()
	conn := pgtest.Acquire(t, b.Pool()).Conn()
	cfg := triggers.Config{
		TrackedSchema: dbtest.Names().Tracked,
		Undo: triggers.Undo{
			MaxRow: b.maxRow, Exclude: exclude,
			Children: []triggers.Table{{Schema: "public", Name: "files"}},
		},
	}
	parents := []triggers.Parent{{
		Schema: "public", Table: "folders", KeyColumns: []string{"id"},
		Undo: triggers.KeepsAll,
	}}
	pgtest.Must(triggers.Install(t.Context(), conn, cfg, parents))(t)
	require.Empty(t, pgtest.Must(triggers.Status(t.Context(), conn, cfg, parents))(t))
	return pgtest.Must(triggers.Cascades(t.Context(), conn, cfg, parents))(t)
}

// If a worker cleaned up after two deletions in the same batches, a restore of one of
// them restores only its own rows. These include rows that native foreign keys deleted or
// changed below parents and children.
func TestNativeCascadesAreRestored(t *testing.T) {
	t.Parallel()
	for _, wrong := range []int{1, 2} {
		if wrong == 1 && !pgtest.Long {
			continue
		}
		t.Run(fmt.Sprint("restore deletion ", wrong), func(t *testing.T) {
			t.Parallel()
			open := func() *bundle {
				b := setup(t, cascading, foldersDefinitions, "folders")
				for _, c := range b.installCascadeTriggers(t) {
					require.Empty(t, c.Uncovered, "%v", c)
				}
				return b
			}
			other, b := open(), open()
			other.Exec(fmt.Sprintf("DELETE FROM folders WHERE id = %d", 3-wrong))
			other.drain(t, 0)
			b.Exec("DELETE FROM folders WHERE id = 1")
			first := b.last(t).ID
			b.Exec("DELETE FROM folders WHERE id = 2")
			second := b.last(t).ID
			require.NotEqual(t, first, second)
			b.drain(t, 0)
			report := b.restore(t, []int64{first, second}[wrong-1])
			require.Empty(t, report.Left)
			require.Equal(t, "restored", report.Unit.State)
			require.Equal(t, "public.folders", report.Unit.Table)
			require.Equal(t, other.all(cascadingTables...), b.all(cascadingTables...))
			require.Empty(t, b.restore(t, []int64{second, first}[wrong-1]).Left)
			clean := setup(t, cascading, foldersDefinitions, "folders")
			require.Equal(t, clean.all(cascadingTables...), b.all(cascadingTables...))
		})
	}
}

// Rows are saved if the native foreign keys that delete them form a cycle.
func TestCyclesOfNativeKeysAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t, folders+`
CREATE TABLE heads (id bigint PRIMARY KEY, folder_id bigint REFERENCES folders ON DELETE CASCADE);
CREATE TABLE tails (id bigint PRIMARY KEY, head_id bigint REFERENCES heads ON DELETE CASCADE);
ALTER TABLE heads ADD tail_id bigint REFERENCES tails ON DELETE CASCADE`, foldersDefinitions, "folders")
	b.installCascadeTriggers(t)
	b.Exec("INSERT INTO folders SELECT generate_series(1, 3); INSERT INTO heads SELECT i, i FROM generate_series(1, 3) AS i")
	b.Exec("INSERT INTO tails SELECT i, i FROM generate_series(1, 3) AS i; UPDATE heads SET tail_id = id % 3 + 1")
	b.Exec("DELETE FROM folders WHERE id = 1")
	unit := b.last(t)
	require.Equal(t, "complete", unit.State)
	counts := map[string]int64{}
	for _, table := range unit.Tables {
		counts[table.Table] = table.Rows
	}
	require.Equal(t, map[string]int64{"public.folders": 1, "public.heads": 3, "public.tails": 3}, counts)
}

// Install reports tables without a primary key and tables on which the role may not
// create a trigger. If undo is off, it removes all its triggers.
func TestUncoveredTablesAreReported(t *testing.T) {
	t.Parallel()
	b := setup(t, cascading, foldersDefinitions, "folders")
	b.Exec("ALTER TABLE links DROP CONSTRAINT links_pkey")
	uncovered := func(list []triggers.Cascade) map[string]string {
		found := map[string]string{}
		for _, c := range list {
			if c.Uncovered != "" {
				found[c.Constraint] = c.Uncovered
				require.NotEmpty(t, c.Fix)
			}
		}
		return found
	}
	without := "old values are kept only for tables with a primary key"
	want := map[string]string{"links_a_fkey": without, "links_b_fkey": without}
	require.Equal(t, want, uncovered(b.installCascadeTriggers(t)))

	role := b.CreateRole()
	b.Exec(fmt.Sprintf(`DROP TRIGGER sexton_keep ON marks; GRANT ALL ON SCHEMA sexton, public TO %[1]q; GRANT ALL ON ALL TABLES IN SCHEMA sexton, public TO %[1]q;
GRANT ALL ON ALL FUNCTIONS IN SCHEMA sexton TO %[1]q; REVOKE TRIGGER ON marks FROM %[1]q`, role))
	cfg := triggers.Config{TrackedSchema: "public"}
	cfg.Undo = triggers.Undo{MaxRow: b.maxRow, Children: []triggers.Table{{Schema: "public", Name: "files"}}}
	parents := []triggers.Parent{{
		Schema: "public", Table: "folders", KeyColumns: []string{"id"},
		Undo: triggers.KeepsAll,
	}}
	conn := pgtest.Connect(t, b.AsRole(role))
	pgtest.Must(triggers.Install(t.Context(), conn, cfg, parents))(t)
	list := pgtest.Must(triggers.Cascades(t.Context(), conn, cfg, parents))(t)
	want["marks_folder_id_fkey"] = "the role may not create a trigger on the table"
	require.Equal(t, want, uncovered(list))
	require.Equal(t, []string{"public.files"}, list[len(list)-1].From, "paths begin at the tables of definitions")

	parents[0].Undo, cfg.Undo = triggers.KeepsNone, triggers.Undo{}
	superuser := pgtest.Acquire(t, b.Pool()).Conn()
	report := pgtest.Must(triggers.Install(t.Context(), superuser, cfg, parents))(t)
	require.Empty(t, report.Surplus)
	require.Empty(t, b.Rows("SELECT FROM pg_trigger WHERE tgname LIKE 'sexton_keep%'"))
	require.Empty(t,
		b.Rows("SELECT FROM pg_proc WHERE proname LIKE 'keep_%' AND pronamespace = 'sexton'::regnamespace"))
}

// Rows that a trigger of the application deletes are not listed as a deletion. DELETEs
// that a session sends in one query string are one deletion. DELETEs in separate queries
// are separate deletions.
func TestDeletionBoundaries(t *testing.T) {
	t.Parallel()
	b := setup(t, cascading, foldersDefinitions, "folders")
	b.installCascadeTriggers(t)
	b.Exec(`CREATE TABLE notes (id bigint);
CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM public.parts WHERE id = NEW.id; RETURN NULL; END';
CREATE TRIGGER more AFTER INSERT ON notes FOR EACH ROW EXECUTE FUNCTION more();
INSERT INTO notes VALUES (3)`)
	require.Empty(t, pgtest.Must(b.engine.List(t.Context(), 10))(t))
	b.Exec("BEGIN; DELETE FROM folders WHERE id = 1; DELETE FROM folders WHERE id = 2; COMMIT")
	require.Len(t, pgtest.Must(b.engine.List(t.Context(), 10))(t), 1)
	tx := b.Begin(t)
	pgtest.Exec(t, tx, "DELETE FROM folders WHERE id = 3")
	pgtest.Exec(t, tx, "SAVEPOINT a")
	pgtest.Exec(t, tx, "DELETE FROM folders WHERE id = 4")
	pgtest.Exec(t, tx, "ROLLBACK TO a")
	pgtest.Exec(t, tx, "DELETE FROM folders WHERE id = 4")
	require.NoError(t, tx.Commit(t.Context()))
	require.Len(t, pgtest.Must(b.engine.List(t.Context(), 10))(t), 3)
	require.EqualValues(t, 2, b.last(t).Tables[0].Rows, "the foreign key deleted folder 8 with folder 4")
}

// If a foreign key from or to a single partition deletes or changes rows, they are
// restored with the deletion that caused it.
func TestKeysOfSinglePartitions(t *testing.T) {
	t.Parallel()
	for _, parentIsPartition := range []bool{false, true} {
		t.Run(fmt.Sprint("parent is partition: ", parentIsPartition), func(t *testing.T) {
			t.Parallel()
			b := setup(t, `
CREATE TABLE folders (id bigint PRIMARY KEY);
CREATE TABLE files (id bigint PRIMARY KEY, folder_id bigint) PARTITION BY LIST (id);
CREATE TABLE files_1 PARTITION OF files FOR VALUES IN (1, 2, 3); CREATE TABLE files_4 PARTITION OF files FOR VALUES IN (4);
CREATE TABLE parts (id bigint, kind int, file_id bigint, PRIMARY KEY (id, kind)) PARTITION BY LIST (kind);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1); CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
ALTER TABLE parts_1 ADD FOREIGN KEY (file_id) REFERENCES files ON DELETE CASCADE;
CREATE TABLE lines (id bigint PRIMARY KEY, part_id bigint, kind int, FOREIGN KEY (part_id, kind) REFERENCES parts ON DELETE CASCADE);
CREATE TABLE links (id bigint PRIMARY KEY, a bigint REFERENCES files_1 ON DELETE SET NULL, b bigint DEFAULT 3 REFERENCES files_1 ON DELETE SET DEFAULT);
CREATE INDEX ON files (folder_id); CREATE INDEX ON parts (file_id);
INSERT INTO folders SELECT generate_series(1, 4); INSERT INTO files SELECT i, i FROM generate_series(1, 4) AS i;
INSERT INTO parts SELECT i, 1, i FROM generate_series(1, 4) AS i; INSERT INTO parts SELECT i, 2, i FROM generate_series(1, 4) AS i;
INSERT INTO lines SELECT id * 2 + kind, id, kind FROM parts;
INSERT INTO links SELECT i, i, i FROM generate_series(1, 3) AS i`, foldersDefinitions, "folders")
			for _, c := range b.installCascadeTriggers(t) {
				require.Empty(t, c.Uncovered, "%v", c)
			}
			tables := []string{"folders", "files", "parts", "lines", "links"}
			before := b.all(tables...)
			b.Exec("DELETE FROM folders WHERE id = 1")
			first := b.last(t).ID
			b.Exec("DELETE FROM folders WHERE id IN (2, 4)")
			second := b.last(t).ID
			b.drain(t, 100_000) // Each batch cleans up after both deletions.
			if parentIsPartition {
				b.Exec("UPDATE sexton.undo SET parent = 'files_1'::regclass WHERE changed IS NOT NULL")
			}
			report := b.restore(t, first)
			require.Empty(t, report.Left)
			require.EqualValues(t, 6, report.Restored, "a folder, a file, a part, its line, and two values")
			require.Equal(t, [][]string{{"1", "1"}, {"3", "1"}},
				b.Rows("SELECT id::text, kind::text FROM parts WHERE kind = 1 ORDER BY 1"))
			require.Empty(t, b.restore(t, second).Left)
			require.Equal(t, before, b.all(tables...))
		})
	}
}
