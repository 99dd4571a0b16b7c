package operator_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/operator"
)

func TestDigest(t *testing.T) {
	t.Parallel()
	keys := operator.DigestOf(json.RawMessage(`{"connection": "main", "turbo_mode": false, "delete_count": 6, "update_count": 1, "processed": 3,
		"delete_count_by_table": {"a": 1, "b": 2, "c": 3}, "update_count_by_table": {"d": 1, "a": 4, "e": 0, "f": 1}, "errors": [{"table": "a", "count": 1}]}`), "")
	require.Equal(t, operator.Digest{
		Items: 3, Rows: 12,
		Tables: []operator.TableCount{{"a", 5}, {"c", 3}, {"b", 2}, {"d", 1}}, MoreTables: 1,
	}, keys)
	users := operator.DigestOf(json.RawMessage(`{"users_processed": 2, "moved": {"issues.author_id": 7}, "deleted": {}, "nullified": {}, "current": {"user_id": 4711, "moved": 3}}`), "")
	require.Equal(t, operator.Digest{Items: 2, Rows: 7, Tables: []operator.TableCount{{"issues.author_id", 7}}}, users)
	rules := operator.DigestOf(json.RawMessage(`{"deleted": {"sessions": 10}, "kept": {"sessions.at": 1}, "due": {"visits.at": 5}}`), "")
	require.Equal(t, operator.Digest{Rows: 10, Tables: []operator.TableCount{{"sessions", 10}}}, rules)
	for _, text := range []string{"", "[]", `"x"`, "{", `{"processed": "many", "moved": [1]}`} {
		require.Equal(t, operator.Digest{}, operator.DigestOf(json.RawMessage(text), ""), text)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stats := json.RawMessage(`{"processed": 100, "delete_count_by_table": {"a": 5000}}`)
	got := operator.PaceOf(operator.Pass{StartedAt: now.Add(-10 * time.Second), Stats: stats},
		components.Backlog{Pending: 410, Deferred: 10}, "", now)
	require.Equal(t, int64(500), got.RowsPerSecond)
	require.Equal(t, int64(500), got.Total)
	require.Equal(t, 40*time.Second, got.Left)
	got = operator.PaceOf(operator.Pass{StartedAt: now.Add(-10 * time.Second), Stats: stats},
		components.Backlog{Pending: 10_000, Capped: true}, "", now)
	require.Zero(t, got.Left, "no estimate if the backlog was not counted completely")
	require.Zero(t, got.Total)
	require.Zero(t, operator.PaceOf(operator.Pass{StartedAt: now, Stats: stats}, components.Backlog{Pending: 1}, "",
		now).RowsPerSecond, "no estimate at the start of a run")
}
