package migrate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

const groupsTables = `
CREATE TABLE users (id bigint PRIMARY KEY, state text, admin boolean);
CREATE TABLE groups (id bigint PRIMARY KEY, parent_id bigint, name text, path text, marked_for_deletion_on date);`

// A table that the application has brought along, as in the original.
const groupSchedules = `CREATE TABLE group_deletion_schedules (
	group_id bigint PRIMARY KEY REFERENCES groups ON DELETE CASCADE, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE,
	marked_for_deletion_on date NOT NULL, remark text);`

func withGroups(t *testing.T, d *pgtest.Database) migrate.Database {
	t.Helper()
	db := everything(t, d)
	db.Components = append(db.Components, migrate.AdjournedGroups)
	return db
}

func TestAdjournedGroupsComeAndGo(t *testing.T) {
	t.Parallel()
	for name, tables := range map[string]string{
		"with a table of ours":              groupsTables,
		"with a table of the application's": groupsTables + groupSchedules,
		"on the reference schema":           sample.Schema(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			d.Exec(tables)
			before := catalogueWithoutWriters(d)
			db := withGroups(t, d)
			up(t, db)
			require.NoError(t, migrate.Check(t.Context(), db))
			require.Empty(t, component(t, up(t, db), migrate.AdjournedGroups).Applied, "the second run finds nothing to do")
			require.Empty(t, d.Rows(`
				SELECT p.oid::regprocedure FROM pg_proc AS p
				WHERE p.pronamespace = 'sexton'::regnamespace AND p.proname !~ '^river_'
					AND (NOT EXISTS (SELECT FROM sexton.objects WHERE kind = 'function' AND to_regprocedure(identity) = p.oid)
						OR EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0))`),
				"registered, and not for PUBLIC")

			down(t, migrate.Database{Name: "main", Conn: db.Conn, JobsSchema: "sexton", TrackedSchema: "public"})
			require.Equal(t, before, catalogueWithoutWriters(d))
			up(t, db)
		})
	}
}

// A rule of the application's own outlives what Sexton does to its objects, whether it was there first or came later.
func TestTheApplicationsRuleStays(t *testing.T) {
	t.Parallel()
	const rule = `CREATE OR REPLACE FUNCTION sexton.may_remove_group(user_id bigint, group_id bigint) RETURNS boolean LANGUAGE sql AS 'SELECT user_id = 7'`
	allowed := func(d *pgtest.Database) bool {
		return pgtest.Scalar[bool](t, d, "SELECT sexton.may_remove_group(7, 1) AND NOT sexton.may_remove_group(1, 1)")
	}
	for name, first := range map[string]bool{"it was there first": true, "it came later": false} {
		t.Run(name, func(t *testing.T) {
			d := pgtest.New(t)
			d.Exec(groupsTables)
			db := withGroups(t, d)
			if first {
				d.Exec("CREATE SCHEMA sexton;" + rule)
			}
			up(t, db)
			if !first {
				d.Exec(rule)
			}
			up(t, db)
			require.True(t, allowed(d))
			require.Equal(t, !first, down(t, db).SchemaKept)
			require.True(t, allowed(d), "it is not Sexton's to remove")
			up(t, db)
			require.True(t, allowed(d))
		})
	}
}

func TestGroupsStayWhereTheyWereInstalled(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(groupsTables)
	db := withGroups(t, d)
	db.Components = without(db.Components, migrate.LooseForeignKeys)
	up(t, db)
	moved := db
	moved.TrackedSchema = "app"
	var placement *migrate.PlacementError
	require.ErrorAs(t, migrate.Check(t.Context(), moved), &placement)
	require.ErrorContains(t, placement, `has its groups to be deleted in "public".group_deletion_schedules`)

	d.Exec("DROP TABLE group_deletion_schedules")
	var schema *migrate.SchemaError
	require.ErrorAs(t, migrate.Check(t.Context(), db), &schema)
	require.Equal(t, `"public".group_deletion_schedules`, schema.Object)
	down(t, db)
	up(t, db)
}
