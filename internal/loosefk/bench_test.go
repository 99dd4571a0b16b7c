package loosefk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// BenchmarkDrain deletes all parents and drains their children, against one raw DELETE of the same rows on a
// twin table in the same run. vs_raw is the ratio of the two speeds: 1 is as fast as the raw statement.
func BenchmarkDrain(b *testing.B) {
	for _, shape := range []struct {
		name                 string
		parents, perParent   int
		parentSQL, actionYML string
	}{
		{"wide", 2000, 100, "n % 2000 + 1", "on_delete: async_delete"},
		{"skew", 2000, 100, "CASE WHEN n % 10 = 0 THEN n % 2000 + 1 ELSE 1 END", "on_delete: async_delete"},
		{"nullify", 500, 100, "n % 500 + 1", "on_delete: async_nullify"},
	} {
		b.Run(shape.name, func(b *testing.B) {
			rows := shape.parents * shape.perParent
			var ours, raw time.Duration
			for range b.N {
				db := dbtest.New(b)
				db.Exec(fmt.Sprintf(`
					CREATE TABLE parents (id bigint PRIMARY KEY);
					CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint, filler text);
					INSERT INTO parents SELECT generate_series(1, %d);
					INSERT INTO children SELECT n, %s, repeat('x', 60) FROM generate_series(1, %d) AS n;
					CREATE TABLE twin AS TABLE children;
					ALTER TABLE twin ADD PRIMARY KEY (id);
					CREATE INDEX ON children (parent_id);
					CREATE INDEX ON twin (parent_id);`, shape.parents, shape.parentSQL, rows))
				db.Exec("ANALYZE")
				db.Track(b, "parents")
				db.Exec("DELETE FROM parents")
				db.Exec("CHECKPOINT")
				statement := "DELETE FROM twin USING loose_foreign_keys_deleted_records AS t WHERE twin.parent_id = t.primary_key_value"
				if shape.name == "nullify" {
					statement = "UPDATE twin SET parent_id = NULL FROM loose_foreign_keys_deleted_records AS t WHERE twin.parent_id = t.primary_key_value"
				}
				began := time.Now()
				db.Exec(statement)
				raw += time.Since(began)

				db.Exec("CHECKPOINT")
				engine := unlimited(b, db, shape.actionYML)
				began = time.Now()
				stats, err := engine.Run(b.Context())
				ours += time.Since(began)
				require.NoError(b, err)
				require.EqualValues(b, rows, stats.DeleteCount+stats.UpdateCount)
				require.Zero(b, db.Pending(b))
			}
			b.ReportMetric(float64(rows*b.N)/ours.Seconds(), "rows/s")
			b.ReportMetric(float64(raw)/float64(ours), "vs_raw")
		})
	}
}

// unlimited is an engine that ends when it is done.
func unlimited(b *testing.B, db *dbtest.DB, action string) *loosefk.Engine {
	parents := parentsOf(b, db.Pool(), "children: [{table: parents, column: parent_id, "+action+"}]")
	manager := lease.Manager{Jobs: db.Connected, Holder: "bench"}
	granted, err := manager.Acquire(b.Context(), "bench", time.Hour, db.Connected)
	require.NoError(b, err)
	return &loosefk.Engine{
		Database: "main", Pace: "adaptive", Parents: parents,
		Limits:   loosefk.Limits{Runtime: time.Hour},
		Adaptive: loosefk.Adaptive{Target: 20 * time.Millisecond, Duty: 1},
		Session: &batch.Session{
			Conn: pgtest.Acquire(b, db.Pool()).Conn(), Names: dbtest.Names(), Fence: granted,
			Limits: batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Minute},
		},
	}
}
