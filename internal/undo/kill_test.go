package undo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// trapped has loose keys on two levels, one that nullifies, and a native one; and traps, which end the session that reaches a point for the nth time. What
// fires behind a statement sees all of it done; the rest fires within, as rows are about to be kept, before they are deleted or, without ahead, behind that.
const trapped = `
CREATE TABLE projects (id bigint PRIMARY KEY, body text);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint, body text);
CREATE TABLE files (id bigint PRIMARY KEY, issue_id bigint, body text);
CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint REFERENCES issues ON DELETE CASCADE, body text);
CREATE TABLE labels (id bigint PRIMARY KEY, project_id bigint, body text);
CREATE INDEX ON issues (project_id); CREATE INDEX ON files (issue_id); CREATE INDEX ON notes (issue_id); CREATE INDEX ON labels (project_id);
INSERT INTO projects SELECT i, 'p' || i FROM generate_series(1, 4) AS i;
INSERT INTO issues SELECT i, i % 4 + 1, 'i' || i FROM generate_series(1, 24) AS i;
INSERT INTO files SELECT i, i % 24 + 1, 'f' || i FROM generate_series(1, 48) AS i;
INSERT INTO notes SELECT i, i % 24 + 1, 'n' || i FROM generate_series(1, 48) AS i;
INSERT INTO labels SELECT i, i % 4 + 1, 'l' || i FROM generate_series(1, 12) AS i;
CREATE TABLE trap (point text, at bigint);
CREATE SEQUENCE reached;
CREATE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	IF TG_ARGV[0] = (SELECT point FROM public.trap) THEN
		IF pg_catalog.nextval('public.reached') = (SELECT at FROM public.trap) THEN
			PERFORM pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());
		END IF;
	END IF;
	RETURN NEW;
END $$;
CREATE FUNCTION place(trapped regclass, point text, happens text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE %s TRIGGER %s %s EXECUTE FUNCTION spring(%2$L)', CASE WHEN happens LIKE '%DEFERRED%' THEN 'CONSTRAINT' END, point,
		format(happens, trapped));
	IF (SELECT relkind = 'r' FROM pg_class WHERE oid = trapped) THEN
		EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %s', trapped, point);
	END IF;
END $$;`

const trappedDefinitions = `
issues: [{table: projects, column: project_id, on_delete: async_delete}]
files: [{table: issues, column: issue_id, on_delete: async_delete}]
labels: [{table: projects, column: project_id, on_delete: async_nullify}]
`

var trappedTables = []string{"projects", "issues", "files", "notes", "labels"}

// trap is a point of a deletion, or of an undo, where the session of whom it concerns ends. Points of the undo's own code are reached in its process.
type trap struct {
	point, happens string
	tables         []string
}

// What sends rows away: the application's DELETE, which keeps its rows too, and the worker's batches.
var onTheWayOut = []trap{
	{"keeping", "BEFORE INSERT ON %s FOR EACH ROW", []string{"sexton.undo"}},
	{"deleting", "BEFORE DELETE ON %s", trappedTables[:4]},
	{"deleted", "AFTER DELETE ON %s", trappedTables[:4]},
	{"changed", "AFTER UPDATE ON %s", []string{"labels"}},
	{"kept", "AFTER INSERT ON %s", []string{"sexton.undo"}},
	{"settled", "AFTER DELETE ON %s", []string{"loose_foreign_keys_deleted_records"}},
	{"committing", "AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW", []string{"sexton.undo"}},
	{"committed", "", nil},
}

// What brings them back.
var onTheWayBack = []trap{
	{"held", "", nil},
	{"begun", "", nil},
	{"restoring", "BEFORE INSERT ON %s", trappedTables[:4]},
	{"restored", "AFTER INSERT ON %s", trappedTables[:4]},
	{"given", "AFTER UPDATE ON %s", []string{"labels"}},
	{"inserted", "", nil},
	{"checked", "", nil},
	{"marked", "", nil},
}

// most is how many times a point is reached at which the session is killed.
var most = 1

// A deletion and its undo are killed at each of their points in turn, at the first time that it is reached, the second, and so on. Each time all of it goes,
// all of it comes back, and nothing comes or goes a second time.
func TestKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"ahead": 0, "as rows go": 20} {
		if limit == 0 && !pgtest.Long {
			continue // What is kept as rows go has all of these points.
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, trapped, trappedDefinitions, "projects", "issues")
			b.keepNotes(t)
			for _, one := range slices.Concat(onTheWayOut, onTheWayBack) {
				for _, table := range one.tables {
					b.Exec("SELECT place($1, $2, $3)", table, one.point, one.happens)
				}
			}
			before := b.all(trappedTables...)
			for i := range onTheWayOut {
				out, back := onTheWayOut[i], onTheWayBack[i]
				for at := 1; at <= most; at++ {
					deleted := b.deleteTrapped(t, out, at, limit)
					newest := pgtest.Scalar[int64](t, b, "SELECT max(id) FROM sexton.undo WHERE origins IS NULL")
					unit := pgtest.Must(b.engine.Show(t.Context(), newest))(t)
					require.Equal(t, "whole", unit.State, "%s %d %v", out.point, at, unit.Tables)
					restored := b.restoreTrapped(t, back, at, unit.ID)
					require.Equal(t, before, b.all(trappedTables...), "%s, %s %d", out.point, back.point, at)
					require.Zero(t, b.Pending(t))
					if !deleted && !restored {
						break
					}
					require.True(t, at > 1 || deleted && restored, "%s, %s", out.point, back.point)
					require.Zero(t, b.restore(t, unit.ID).Restored)
				}
			}
			b.drain(t, 0)
			require.Equal(t, before, b.all(trappedTables...))
		})
	}
}

// keepNotes has the rows kept that the native key takes along.
func (b *bundle) keepNotes(t *testing.T) {
	t.Helper()
	pgtest.Must(triggers.Install(t.Context(), pgtest.Acquire(t, b.Pool()).Conn(), triggers.Config{
		TrackedSchema: dbtest.Names().Tracked,
		Undo:          triggers.Undo{MaxRow: b.maxRow, Children: []triggers.Table{{Schema: "public", Name: "issues"}}},
	}, []triggers.Parent{
		{Schema: "public", Table: "projects", KeyColumns: []string{"id"}, Undo: triggers.KeepsAll},
		{Schema: "public", Table: "issues", KeyColumns: []string{"id"}, Undo: triggers.KeepsAll},
	}))(t)
}

// set makes a trap the only one.
func (b *bundle) set(one trap, at int) {
	b.Exec(fmt.Sprintf("TRUNCATE trap; INSERT INTO trap VALUES ('%s', %d); ALTER SEQUENCE reached RESTART", one.point, at))
}

// sprung reports whether the trap has.
func (b *bundle) sprung(t *testing.T, at int) bool {
	return pgtest.Scalar[bool](t, b, "SELECT is_called AND last_value >= $1 FROM reached", at)
}

// deleteTrapped deletes two projects and all below them, again after each kill.
func (b *bundle) deleteTrapped(t *testing.T, one trap, at, limit int) (killed bool) {
	t.Helper()
	b.set(one, at)
	kills := 0
	for done := false; !done; {
		conn := pgtest.Must(pgx.Connect(t.Context(), b.URL))(t)
		_, err := conn.Exec(t.Context(), "DELETE FROM projects WHERE id > 2")
		_ = conn.Close(t.Context())
		if done = err == nil; !done {
			require.True(t, conn.IsClosed())
			kills++
		}
	}
	committed := 0
	b.progress = func(kill func()) {
		if committed++; one.point == "committed" && committed == at {
			kill()
		}
	}
	defer func() { b.progress = nil }()
	for len(b.Rows("SELECT FROM loose_foreign_keys_deleted_records WHERE status = 1")) > 0 {
		if _, err := b.run(t, limit); err != nil {
			kills++
		}
		require.Less(t, kills, 3)
	}
	return committed >= at && one.point == "committed" || b.sprung(t, at)
}

// restoreTrapped takes a deletion back, again after each kill that ends the command: it has other sessions.
func (b *bundle) restoreTrapped(t *testing.T, one trap, at int, id int64) (killed bool) {
	t.Helper()
	b.set(one, at)
	kills, reached, gone := 0, 0, b.all(trappedTables...)
	b.engine.Reached = func(point string) error {
		if point != one.point {
			return nil
		}
		if reached++; reached != at {
			return nil
		}
		if at%2 == 0 || point == "held" {
			return errCut // Between transactions there is no session.
		}
		b.Exec(killUndo)
		return nil
	}
	defer func() { b.engine.Reached = nil }()
	for {
		_, err := b.engine.Restore(t.Context(), id, false)
		if err == nil {
			return reached >= at || b.sprung(t, at)
		}
		kills++
		require.Less(t, kills, 3)
		require.Equal(t, gone, b.all(trappedTables...), "a killed undo restores nothing")
	}
}

var errCut = errors.New("cut off")

// killUndo ends the sessions that hold a lease.
const killUndo = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%#%'"

// watch has the bundle's progress called behind each batch.
func (b *bundle) watch(engine *loosefk.Engine) {
	if kill := b.KillOnce(engine.Session.Conn); b.progress != nil {
		engine.Progress = func(context.Context, *loosefk.Stats) { b.progress(kill) }
	}
}
