package riverjobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/drain/dml"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
)

// operandsSQL creates operators in the schema public for all pairs of types for which
// Postgres has no operator of that name. Each operator raises an error.
const operandsSQL = `DO $do$
DECLARE
    trap record;
BEGIN
    FOR trap IN
        SELECT operator.name, a.name AS "left", b.name AS "right"
        FROM unnest('{=,<>,<,<=,>,>=,+,-,->,->>}'::text[]) AS operator (name)
        CROSS JOIN unnest('{text,int2,int4,int8,numeric,float8,timestamptz,date,interval,jsonb,text[],sexton.river_job_state}'::regtype[]) AS a (name)
        CROSS JOIN unnest('{text,int2,int4,int8,numeric,float8,timestamptz,date,interval,jsonb,text[],sexton.river_job_state}'::regtype[]) AS b (name)
        WHERE NOT EXISTS (SELECT FROM pg_operator AS own WHERE own.oprname = operator.name AND own.oprleft = a.name AND own.oprright = b.name)
    LOOP
        EXECUTE format('CREATE FUNCTION %I(%s, %s) RETURNS %s LANGUAGE plpgsql AS $trap$ BEGIN RAISE EXCEPTION ''the stranger''''s %1$s''; END $trap$',
            trap."left" || trap.name || trap."right", trap."left", trap."right", CASE trap.name WHEN '->>' THEN 'text' ELSE 'boolean' END);
        EXECUTE format('CREATE OPERATOR %s (FUNCTION = %I, LEFTARG = %s, RIGHTARG = %s)', trap.name,
            trap."left" || trap.name || trap."right", trap."left", trap."right");
    END LOOP;
END $do$`

// A query outside a transaction runs with the search_path of the session, which a
// transaction pooler may change. The queries for due rows must not resolve to operators
// of another role in public.
func TestDueQueriesUseNoForeignOperators(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t, "SEXTON_ADJOURNED_GROUPS__ENABLED=true")
	b.db.Exec(`
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
		INSERT INTO users (id, username, email, name, admin) VALUES (1, 'admin', 'admin@example.com', 'Admin', true);
		UPDATE import_placeholder_user_details SET last_deletion_attempt_at = now(), deletion_attempts = 1 WHERE id = 12`)
	b.db.Exec("SELECT sexton.schedule_group_deletion(1, 1), sexton.schedule_group_deletion(2, 1)")
	b.db.Exec(`UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 31 WHERE id = 1`)
	b.enqueue(t, GroupDestroyArgs{GroupID: dml.IntegerID(1), UserID: dml.IntegerID(1)})
	b.db.Exec(`INSERT INTO sexton.river_job (args, kind, queue, max_attempts, state, attempt, errors)
		VALUES ('{"diff_id": 1}', $1, $1, 20, 'retryable', 1, ARRAY['{"error": "gone"}'::jsonb])`, extdiff.MoveKind)
	b.db.Exec(operandsSQL)
	conn := pgtest.Connect(t, b.db.URL)
	require.Contains(t, pgtest.Scalar[string](t, conn, "SHOW search_path"), "public")
	queries := 0
	for _, job := range Jobs(b.deps.Config) {
		if job.Inserted() {
			continue
		}
		_, err := job.Subscription(b.deps, b.db.Connected).Due(t.Context(), conn, true)
		require.NoError(t, err, job.Kind)
		queries++
	}
	require.GreaterOrEqual(t, queries, 3)
	_, err := extdiff.ReadFailed(t.Context(), conn, b.db.Connected.Names, 10)
	require.NoError(t, err)
}
