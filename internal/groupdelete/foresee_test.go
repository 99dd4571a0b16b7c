package groupdelete_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/drain"
	"sexton/internal/groupdelete"
	"sexton/internal/pgtest"
)

const notices = "CREATE TABLE notices (id bigint PRIMARY KEY, group_id bigint REFERENCES groups ON DELETE SET NULL); CREATE INDEX ON notices (group_id);"

func (b bundle) foresee(t *testing.T, group int64) *groupdelete.Foresight {
	t.Helper()
	plan, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), b.Pool(), dbtest.Names(), false))(t)
	require.NoError(t, problems.Err())
	return pgtest.Must(groupdelete.Foresee(t.Context(), b.Pool(), dbtest.Names(), plan, nil, group))(t)
}

func TestForeseesWhatADestructionDoes(t *testing.T) {
	t.Parallel()
	b := setup(t, issues+notices, someIssues+"INSERT INTO notices VALUES (1, 1), (2, 3), (3, 9)")
	before := content(b.Database)
	seen := b.foresee(t, 1)
	require.Equal(t, before, content(b.Database))
	require.Empty(t, seen.Forbidden)
	require.False(t, seen.Capped)
	stats := b.destroy(t, groupdelete.Destroyed)
	stats.Deleted["group_deletion_schedules"] = 1 // It goes with the group, and is not counted as a row of its own.
	require.Equal(t, stats.Deleted, seen.Deleted)
	require.Equal(t, map[string]int64{"notices.group_id": 2}, seen.Nullified)
	require.Equal(t, stats.Nullified, seen.Nullified)
	require.Equal(t, stats.Done+1, seen.Rows)
	require.False(t, b.foresee(t, 1).Exists)
}

// What loose foreign keys take later counts apart, at any depth, and forbids nothing.
func TestForeseesLooseChildren(t *testing.T) {
	t.Parallel()
	b := setup(t, issues+`
		CREATE TABLE builds (id bigint PRIMARY KEY, project_id bigint, kind text);
		CREATE TABLE traces (id bigint PRIMARY KEY, build_id bigint);
		CREATE TABLE stages (id bigint PRIMARY KEY, build_id bigint NOT NULL REFERENCES builds ON DELETE CASCADE);
		CREATE TABLE audits (id bigint PRIMARY KEY, build_id bigint REFERENCES builds);
		CREATE TABLE runners (id bigint PRIMARY KEY, group_id bigint);`, someIssues+`;
		INSERT INTO builds SELECT n, CASE WHEN n <= 5 THEN 31 ELSE 91 END, CASE WHEN n = 5 THEN 'other' ELSE 'it''s' END FROM generate_series(1, 9) AS n;
		INSERT INTO traces SELECT n, n FROM generate_series(1, 9) AS n;
		INSERT INTO stages SELECT n, 1 FROM generate_series(1, 3) AS n;
		INSERT INTO audits VALUES (1, 1);
		INSERT INTO runners VALUES (1, 3), (2, 4), (3, 9)`)
	public := func(table string) [2]string { return [2]string{"public", table} }
	loose := pgtest.Must(groupdelete.ResolveLoose(t.Context(), b.Pool(), dbtest.Names(), false, []drain.Loose{
		{Child: public("builds"), Columns: []string{"project_id"}, Parent: public("projects"), Action: drain.Remove, Only: [][2]string{{"kind", "it's"}}},
		{Child: public("traces"), Columns: []string{"build_id"}, Parent: public("builds"), Targets: []string{"id"}, Action: drain.Remove},
		{Child: public("runners"), Columns: []string{"group_id"}, Parent: public("groups"), Action: drain.Nullify},
		{Child: public("missing"), Columns: []string{"group_id"}, Parent: public("groups"), Action: drain.Nullify},
		{Child: public("notes"), Columns: []string{"missing"}, Parent: public("groups"), Action: drain.Nullify},
	}))(t)
	plan, _ := pgtest.Must2(groupdelete.Resolve(t.Context(), b.Pool(), dbtest.Names(), false))(t)
	seen := pgtest.Must(groupdelete.Foresee(t.Context(), b.Pool(), dbtest.Names(), plan, loose, 1))(t)
	require.Equal(t, map[string]int64{"builds": 4, "traces": 4, "stages": 3, "runners.group_id": 2}, seen.Loose)
	natively := b.foresee(t, 1)
	natively.Loose = seen.Loose
	require.Equal(t, natively, seen, "all else is as without")
	require.Empty(t, seen.Forbidden)
}

func TestForeseesWhatForbidsADestruction(t *testing.T) {
	t.Parallel()
	b := setup(t, issues+"CREATE TABLE audits (id bigint PRIMARY KEY, project_id bigint REFERENCES projects); CREATE INDEX ON audits (project_id);",
		someIssues+"INSERT INTO audits VALUES (5, 31)")
	require.Equal(t, "audits: the row with id 5 refers to projects, and foreign key audits_project_id_fkey has no action for it", b.foresee(t, 1).Forbidden)
	require.Empty(t, b.foresee(t, 4).Forbidden)
}

// What is more than a command should read is estimated.
func TestForeseesThatThereIsMuch(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues+"INSERT INTO notes SELECT n, 111 FROM generate_series(1000001, 1120000) AS n")
	seen := b.foresee(t, 1)
	require.True(t, seen.Capped)
	require.Greater(t, seen.Rows, int64(20_000))
}
