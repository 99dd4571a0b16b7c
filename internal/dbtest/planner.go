package dbtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// RecordPlannerSettings makes triggers of tables record which of the planner's settings
// the session has changed: for each row, and again at COMMIT.
func (d *DB) RecordPlannerSettings(tables ...string) {
	d.Exec(`CREATE SCHEMA strangers;
		CREATE TABLE strangers.settings (of_table name, changed text[]);
		CREATE FUNCTION strangers.record_settings() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN
			INSERT INTO strangers.settings SELECT TG_TABLE_NAME, ARRAY(
				SELECT name FROM pg_catalog.pg_settings WHERE category LIKE 'Query Tuning%' AND source IN ('session', 'client'));
			RETURN NULL;
		END$$`)
	for _, table := range tables {
		d.Exec(fmt.Sprintf(`CREATE TRIGGER record_settings AFTER INSERT OR UPDATE OR DELETE ON %[1]s
				FOR EACH ROW EXECUTE FUNCTION strangers.record_settings();
			CREATE CONSTRAINT TRIGGER record_settings_at_commit AFTER INSERT OR UPDATE OR DELETE ON %[1]s
				DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION strangers.record_settings()`, table))
	}
}

// RequireOwnPlannerSettings fails the test if a trigger found a changed setting, or if
// none of these tables' triggers has run.
func (d *DB) RequireOwnPlannerSettings(tb testing.TB, tables ...string) {
	require.Empty(tb, d.Rows("SELECT DISTINCT of_table, changed FROM strangers.settings WHERE changed <> '{}'"))
	for _, table := range tables {
		require.NotEmpty(tb, d.Rows("SELECT FROM strangers.settings WHERE of_table = $1", table), "the triggers of %s",
			table)
	}
}
