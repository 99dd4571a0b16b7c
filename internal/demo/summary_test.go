package demo

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSummaryText(t *testing.T) {
	t.Parallel()
	summary := newSummary(Site{Rows: 200000}, busy(), 25040*time.Millisecond)
	var out bytes.Buffer
	require.NoError(t, summary.Text(&out))
	require.Equal(t, `
ended after 25.0 s
loose foreign keys: 1,234 parents deleted, 1,200,104 rows deleted, 15 nullified or updated
  from commit to clean: p50 12.4 ms, p99 1234.5 ms
ghost users: 30 users deleted, 500 rows moved, 42 deleted, 3 nullified
  from request to gone: p50 0.0 ms, p99 0.0 ms
`, out.String())

	out.Reset()
	summary.found(1, []Finding{{Name: "users_left", Text: "users are left"}, {Name: "contributions", Text: "contributions", Count: 4567}})
	summary.found(0, []Finding{{Name: orphansLeft, Text: "orphans are left"}})
	require.NoError(t, summary.Text(&out))
	require.Contains(t, out.String(), "p99 1234.5 ms\n  0 orphans are left\nghost users: ")
	require.Contains(t, out.String(), "p99 0.0 ms\n  0 users are left\n  4,567 contributions\n")
}

func TestSummaryHasAnObjectPerJob(t *testing.T) {
	t.Parallel()
	summary := newSummary(Site{Rows: 17}, busy(), 1500*time.Millisecond)
	require.Nil(t, summary.OrphansLeft)
	summary.found(1, []Finding{{Name: "users_left"}, {Name: "contributions", Count: 4567}})
	text, err := json.Marshal(summary)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"rows_loaded": 17, "parents_deleted": 1234, "children_deleted": 1200104, "children_nullified": 15, "children_updated": 0,
		"orphans_left": null, "p50_latency_ms": 12.4, "p99_latency_ms": 1234.5, "seconds": 1.5,
		"jobs": {
			"loose_foreign_keys_cleanup": {
				"acted": 1234, "planned": 56789, "waiting": 1002, "p50_latency_ms": 12.4, "p99_latency_ms": 1234.5, "check": null,
				"runs": 3, "processed": 4000, "errors": 0,
				"delete_count_by_table": {"notes": 1200000, "todos": 34, "labels": 34, "events": 35, "uploads": 1},
				"update_count_by_table": {"p_ci_builds": 7, "reviews": 8}
			},
			"users_migrate_records_to_ghost_user_in_batches": {
				"acted": 30, "planned": 30, "waiting": 1, "p50_latency_ms": 0, "p99_latency_ms": 0, "check": {"users_left": 0, "contributions": 4567},
				"runs": 0, "users_processed": 29, "errors": 0,
				"moved": {"notes.author_id": 500}, "deleted": {"todos.user_id": 40, "notes.author_id": 2}, "nullified": {"projects.creator_id": 3}
			}
		}
	}`, string(text))
}

func TestSummaryTellsUpdatesFromNullifications(t *testing.T) {
	t.Parallel()
	state := State{Scenes: []SceneState{{
		Script: (*looseForeignKeys)(nil).Script(), Acted: 2,
		Tally: Tally{ByTable: map[string]map[string]int64{
			"delete_count_by_table": {"a": 3, "b": 4}, "update_count_by_table": {"kids": 5, "app.kids": 6, "others": 7},
		}},
	}}}
	summary := newSummary(Site{Definitions: parsed(t, `
kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 1}]
app.kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 1}]
others: [{table: parents, column: parent_id, on_delete: async_nullify}]
`)}, state, 0)
	require.EqualValues(t, 2, summary.ParentsDeleted)
	require.Equal(t, []int64{7, 7, 11}, []int64{summary.ChildrenDeleted, summary.ChildrenNullified, summary.ChildrenUpdated})
}
