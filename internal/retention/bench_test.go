package retention_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/retention"
)

// BenchmarkRule compares a pass with one DELETE of the same rows. The metric ratio is the
// rows per second of the pass divided by the rows per second of the DELETE.
func BenchmarkRule(b *testing.B) {
	const fill = `
		DROP TABLE IF EXISTS events;
		CREATE TABLE events (id bigint PRIMARY KEY, at timestamptz, note text);
		CREATE INDEX ON events (at);
		INSERT INTO events SELECT n, now() - interval '100 days' + n * interval '1 second', repeat('x', 70) FROM generate_series(1, 500000) AS n;
		INSERT INTO events SELECT n, now(), repeat('x', 70) FROM generate_series(500001, 550000) AS n;
		ANALYZE events; CHECKPOINT;`
	db := setup(b, "")
	var raw, pass time.Duration
	for b.Loop() {
		db.Exec(fill)
		began := time.Now()
		db.Exec("DELETE FROM events WHERE at < now() - interval '30 days'")
		raw += time.Since(began)

		db.Exec(fill)
		db.Exec("UPDATE sexton.leases SET expires_at = now()")
		session, end := db.Session(b, "retention")
		e := engineOn(b, db, session, retention.Rule{Table: "events", Column: "at", Keep: 30 * day})
		e.Runtime = 4 * time.Minute
		began = time.Now()
		_, err := e.Run(b.Context())
		pass += time.Since(began)
		end()
		require.NoError(b, err)
		require.Equal(b, [][]string{{"50000"}}, db.Rows("SELECT count(*) FROM events"))
	}
	b.ReportMetric(raw.Seconds()/pass.Seconds(), "ratio")
	b.ReportMetric(pass.Seconds()/float64(b.N), "s/pass")
	b.ReportMetric(0, "ns/op")
}
