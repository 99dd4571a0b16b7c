package dbtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// RecordPlannerSettings installs triggers on the tables. For each changed row, and again
// at COMMIT, they record the planner settings that the session has changed.
func (d *DB) RecordPlannerSettings(tables ...string) {
	d.Exec(`CREATE SCHEMA recorder;
		CREATE TABLE recorder.settings (of_table name, changed text[]);
		CREATE FUNCTION recorder.record_settings() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN
			INSERT INTO recorder.settings SELECT TG_TABLE_NAME, ARRAY(
				SELECT name FROM pg_catalog.pg_settings WHERE category LIKE 'Query Tuning%' AND source IN ('session', 'client'));
			RETURN NULL;
		END$$`)
	for _, table := range tables {
		d.Exec(fmt.Sprintf(`CREATE TRIGGER record_settings AFTER INSERT OR UPDATE OR DELETE ON %[1]s
				FOR EACH ROW EXECUTE FUNCTION recorder.record_settings();
			CREATE CONSTRAINT TRIGGER record_settings_at_commit AFTER INSERT OR UPDATE OR DELETE ON %[1]s
				DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION recorder.record_settings()`, table))
	}
}

// RequireDefaultPlannerSettings fails the test if a trigger recorded a changed planner
// setting, or if a table's triggers have not run.
func (d *DB) RequireDefaultPlannerSettings(tb testing.TB, tables ...string) {
	require.Empty(tb, d.Rows("SELECT DISTINCT of_table, changed FROM recorder.settings WHERE changed <> '{}'"))
	for _, table := range tables {
		require.NotEmpty(tb, d.Rows("SELECT FROM recorder.settings WHERE of_table = $1", table), "the triggers of %s",
			table)
	}
}
