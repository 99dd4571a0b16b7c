package samples_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/internal/samples"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestOneWorkerAtATimeAddsSamples(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	due, err := samples.Due(t.Context(), d.Connected)
	require.NoError(t, err)
	require.True(t, due)
	backlog := []samples.Sample{
		{Database: "main", Table: "a", Pending: 7, Deferred: 2, OldestAge: 90 * time.Second},
		{Database: "ci", Table: "a", Pending: 10_000, Capped: true},
	}
	var added atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			ok, err := samples.Add(t.Context(), d.Connected, backlog)
			if err == nil && ok {
				added.Add(1)
			}
		})
	}
	workers.Wait()
	require.EqualValues(t, 1, added.Load())
	require.Equal(t, [][]string{
		{"ci", "a", "10000", "t", "0", "0", "t"}, {"main", "a", "7", "f", "2", "90", "t"},
	}, d.Rows("SELECT database, deletion_table, pending, capped, deferred, oldest_age_seconds, coarse FROM sexton.samples ORDER BY 1"))
	due, err = samples.Due(t.Context(), d.Connected)
	require.NoError(t, err)
	require.False(t, due)

	// The next one is due, and the first of its five minutes is the one that is kept long.
	d.Exec("UPDATE sexton.samples SET taken_at = taken_at - interval '20 seconds'")
	again, err := samples.Add(t.Context(), d.Connected, backlog[:1])
	require.NoError(t, err)
	require.True(t, again)
	require.Equal(t, "t", d.Rows(`SELECT count(*) FILTER (WHERE coarse) = count(DISTINCT date_bin('5 minutes', taken_at, 'epoch'))
		FROM sexton.samples WHERE database = 'main'`)[0][0])
}

func TestSamplesAreKeptForSevenDays(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	d.Exec(`INSERT INTO sexton.samples
		SELECT now() - age, 'main', 'a', 1, false, 0, 0, coarse
		FROM (VALUES (interval '23 hours', false), ('25 hours', false), ('26 hours', true), ('6 days', false), ('167 hours', true), ('8 days', true), ('9 days', false))
			AS kept (age, coarse)`)
	added, err := samples.Add(t.Context(), d.Connected, nil)
	require.NoError(t, err)
	require.True(t, added)
	require.Equal(t, [][]string{{"167", "t"}, {"26", "t"}, {"23", "f"}}, d.Rows(
		"SELECT round(extract(epoch FROM now() - taken_at) / 3600), coarse FROM sexton.samples ORDER BY taken_at"))

	// However much has been left, one sample removes a bounded part.
	d.Exec(`INSERT INTO sexton.samples SELECT now() - interval '2 days' - n * interval '1 second', 'main', 'a', 1, false, 0, 0, false FROM generate_series(1, 1500) AS n`)
	_, err = samples.Add(t.Context(), d.Connected, nil)
	require.NoError(t, err)
	require.EqualValues(t, 503, pgtest.Scalar[int64](t, d.Database, "SELECT count(*) FROM sexton.samples"))
}

func TestReadKeepsThePeaks(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	// Bins are those of the epoch: these lie in three of them, whatever the time.
	d.Exec(`INSERT INTO sexton.samples
		SELECT date_bin('60 seconds', now(), 'epoch') - age, database, 'a', pending, false, 0, pending * 2, false
		FROM (VALUES (interval '119 seconds', 'main', 5), ('100 seconds', 'main', 900), ('70 seconds', 'main', 6), ('30 seconds', 'main', 7), ('30 seconds', 'ci', 1),
			('2 hours', 'main', 5000)) AS sample (age, database, pending)`)
	series, err := samples.Read(t.Context(), d.Connected, time.Hour, time.Minute)
	require.NoError(t, err)
	require.Len(t, series, 2)
	require.Equal(t, "ci", series[0].Database)
	require.Equal(t, "main", series[1].Database)
	points := series[1].Points
	require.Len(t, points, 2, "what is older than the span is left out")
	require.EqualValues(t, 900, points[0].Pending)
	require.InDelta(t, 1800, points[0].OldestAgeSeconds, 0)
	require.EqualValues(t, 7, points[1].Pending)
	require.Equal(t, points[0].At+60, points[1].At)
}
