package loosefk_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Triggers of the application run with the default planner settings: this trigger's join
// takes 10 ms as a hash join, and minutes as a nested loop.
func TestStatementTriggersJoinWithoutAnIndex(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren+`
			CREATE TABLE one AS SELECT n FROM generate_series(1, 30000) AS n;
			CREATE TABLE two AS SELECT n FROM generate_series(1, 30000) AS n;
			ANALYZE one, two;
			CREATE TABLE counted (joined bigint);
			CREATE FUNCTION join_tables() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN INSERT INTO counted SELECT count(*) FROM one JOIN two USING (n); RETURN NULL; END $$;
			CREATE TRIGGER join_tables AFTER DELETE ON children FOR EACH STATEMENT EXECUTE FUNCTION join_tables();`,
			deleteChildren, "parents").withPace(pace)
		b.engine.Session.Limits.StatementTimeout = 5 * time.Second
		b.Exec("DELETE FROM parents WHERE id <= 4")
		require.EqualValues(t, 40, b.runWithoutErrors(t).DeleteCount)
		require.Empty(t, b.tombstones())
		require.Equal(t, [][]string{{"30000"}}, b.Rows("SELECT DISTINCT joined FROM counted"))
	})
}

// Deferred constraint triggers run at COMMIT with the search path of the application.
func TestDeferredTriggersUseTheApplicationsSearchPath(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren+`
			CREATE SCHEMA app;
			CREATE TABLE app.trail (child bigint);
			CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO trail VALUES (OLD.id); RETURN NULL; END $$;
			CREATE CONSTRAINT TRIGGER note AFTER DELETE ON children DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.note();`,
			deleteChildren, "parents").withPace(pace)
		b.engine.Session.Names.Path = "app"
		b.Exec("DELETE FROM parents WHERE id <= 4")
		require.EqualValues(t, 40, b.runWithoutErrors(t).DeleteCount)
		require.Empty(t, b.tombstones())
		require.Equal(t, [][]string{{"40"}}, b.Rows("SELECT count(*) FROM app.trail"))
	})
}

func TestTriggersSeeNoPlannerSettings(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren+others, deleteChildren+`
others:
  - table: parents
    column: parent_id
    on_delete: async_nullify
`, "parents").withPace(pace)
		b.RecordPlannerSettings("children", "others", "loose_foreign_keys_deleted_records")
		b.Exec("DELETE FROM parents")
		b.runToEnd(t)
		b.RequireDefaultPlannerSettings(t, "children", "others", "loose_foreign_keys_deleted_records")
	})
}
